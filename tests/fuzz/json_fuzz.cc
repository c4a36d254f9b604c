// parse_json and what is done with any document: written, written as Python does, sorted, and read
// again.
#include "core/json.h"
#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepts([&] {
    const Json value = parse_json(text);
    KVCAL_CHECK(parse_json(dump_json(value)) == value);
    dump_as_python(value);
    KVCAL_CHECK(sorted_keys(sorted_keys(value)) == sorted_keys(value));
  });
  fuzz::accepts([&] { dump_as_python(parse_json(text, {.has_python_constants = true})); });
  return 0;
}
