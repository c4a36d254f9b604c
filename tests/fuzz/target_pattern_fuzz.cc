// A target of a recipe on the name of a module: the pattern, a line end, the name.
#include "quant/module_target.h"

#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string pattern = "re:" + std::string(text.substr(0, end));
  const std::string name(text.substr(std::min(end + 1, text.size())));
  if (fuzz::accepts([&] { check_target(pattern); }))
    fuzz::accepts([&] { matches_target(pattern, name, "Linear"); });
  return 0;
}
