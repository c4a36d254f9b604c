// The regular expression of a tokenizer.json's Split on a text: expression, a line end, text. The
// hand-written scanner, where there is one for the expression, must split as PCRE2 does.
#include "support/fuzz.h"
#include "tokenizers/pattern.h"
#include "unicode/unicode.h"

using namespace kvcal;
using namespace kvcal::tokenizers;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::text_of(data, size);
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string_view expression = input.substr(0, end);
  const std::string text = unicode::replace_invalid(input.substr(std::min(end + 1, input.size())));
  fuzz::accepts([&] {
    const auto pattern = make_regex(expression);
    size_t at = 0;
    pattern->for_each(text, [&](Span match) {
      KVCAL_CHECK(match.begin >= at && match.end >= match.begin && match.end <= text.size());
      at = match.end;
    });
    for (const Behaviour behaviour : {Behaviour::kIsolated, Behaviour::kMergedWithNext}) {
      size_t covered = 0;
      split_at(text, *pattern, false, behaviour, [&](Span part) {
        KVCAL_CHECK(part.begin == covered);
        covered = part.end;
      });
      KVCAL_CHECK(covered == text.size());
    }
  });
  return 0;
}
