#include "eval/stop_strings.h"

#include <algorithm>

namespace kvcal {

StopStrings::StopStrings(const Tokenizer& tokenizer, const std::vector<std::string>& strings)
    : tokenizer_(tokenizer) {
  for (const std::string& text : strings)
    if (!text.empty()) stops_.push_back({text, tokenizer.encode(text, false).size() + 2});
}

bool StopStrings::end(std::span<const TokenId> ids) const {
  return std::ranges::any_of(stops_, [&](const Stop& stop) {
    const auto last = ids.last(std::min(stop.tokens, ids.size()));
    return tokenizer_.decode(last, false).find(stop.text) != std::string::npos;
  });
}

std::string StopStrings::cut(std::string_view text) const {
  for (const Stop& stop : stops_) text = text.substr(0, text.find(stop.text));
  return std::string(text);
}

}  // namespace kvcal
