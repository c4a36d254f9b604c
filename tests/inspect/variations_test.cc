#include "inspect/family_list.h"

#include <algorithm>

#include "core/error.h"
#include "support/catch.h"

namespace kvcal {
namespace {

std::vector<std::string> words_of(std::string_view family) {
  for (const Architecture& architecture : architectures())
    if (architecture.name == family) return variation_words(architecture);
  throw Error("no family " + std::string(family));
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

TEST_CASE("variations: Llama has none, others are told apart from it") {
  CHECK(words_of("llama").empty());
  CHECK(has(words_of("gemma3"), "norm of 1 + w"));
  CHECK(has(words_of("gemma3"), "window in 5 of 6 layers"));
  CHECK(has(words_of("deepseek_v3"), "MLA"));
  CHECK(has(words_of("jamba"), "Mamba layers"));
}

}  // namespace kvcal
