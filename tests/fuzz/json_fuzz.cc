// parse_json and what is done with any document: counted before it is read, written, written as
// Python does, sorted, read again, and asked for fields.
#include "core/json.h"
#include "support/fuzz.h"

using namespace kvcal;

namespace {

size_t count_values(const Json& value) {
  size_t count = 1;
  if (value.is_structured())
    for (const Json& member : value) count += count_values(member);
  return count;
}

/// What is over the limit must be seen in the text.
void count_and_read(std::string_view text) {
  constexpr size_t kMostValues = 8, kMostTokenBytes = 24;
  check_json_sizes(text, kMostValues, kMostTokenBytes);
  const Json value = parse_json(text);
  KVCAL_CHECK(count_values(value) <= kMostValues);
  KVCAL_CHECK(!value.is_string() || value.get_ref<const std::string&>().size() <= kMostTokenBytes);
}

void ask_for_fields(const Json& value) {
  if (!value.is_object()) return;
  for (auto member = value.begin(); member != value.end(); ++member) {
    const std::string& key = member.key();
    fuzz::accepts([&] { required_int(value, key); });
    fuzz::accepts([&] { required_number(value, key); });
    fuzz::accepts([&] { optional_bool(value, key); });
    fuzz::accepts([&] { required_string(value, key); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts([&] {
    const Json value = parse_json(text);
    KVCAL_CHECK(parse_json(dump_json(value)) == value);
    dump_as_python(value);
    KVCAL_CHECK(sorted_keys(sorted_keys(value)) == sorted_keys(value));
    ask_for_fields(value);
  });
  fuzz::accepts([&] { count_and_read(text); });
  fuzz::accepts([&] { dump_as_python(parse_json(text, {.has_python_constants = true})); });
  return 0;
}
