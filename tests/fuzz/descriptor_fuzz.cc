// The descriptor of a data set, and a record read by it.
#include "datasets/descriptor.h"

#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const Json record = parse_json(
      R"({"text": "t", "messages": [{"role": "user", "content": "hi"}], "input_ids": [1, 2],
          "conversations": [{"from": "human", "value": "hi"}], "a": "x", "b": null, "c": 1})");
  const std::filesystem::path path = folder.write("a.yaml", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const DatasetDescriptor descriptor = read_descriptor(path, {});
    KVCAL_CHECK(!descriptor.local_copy.empty());
    map_record(descriptor.mapping, record, "here");
  });
  return 0;
}
