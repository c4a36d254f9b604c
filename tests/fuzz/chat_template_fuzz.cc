// A chat template, rendered with a conversation, tools and none.
#include "datasets/chat_template.h"

#include "support/fuzz.h"

using namespace kvcal;

namespace {

const Json& variables() {
  static const Json kVariables = parse_json(R"({
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi \u00e9\ud83d\ude00"},
                 {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "id": "a1",
                  "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, true, null]}}}]},
                 {"role": "tool", "name": "f", "content": "{\"z\": 2}"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
               {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}],
    "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
    "s": "abc", "n": 7, "f": 2.5, "l": [3, 1, 2], "d": {"b": 1, "a": 2}})");
  return kVariables;
}

std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  return time;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As a user's, but for slow units not to be lost among legal ones.
  constexpr TemplateLimits kLimits{.max_steps = 200'000,
                                   .max_output_bytes = size_t{1} << 20,
                                   .max_memory_bytes = size_t{16} << 20};
  fuzz::accepts([&] {
    const ChatTemplate parsed(fuzz::text_of(data, size), kLimits);
    const std::string text = parsed.render(variables(), fixed_time);
    KVCAL_CHECK(text.size() <= kLimits.max_output_bytes);
    KVCAL_CHECK(parsed.render(variables(), fixed_time) == text);
  });
  return 0;
}
