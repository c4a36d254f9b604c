// A whole safetensors file: header, tensors found by name, and written again from what was read.
#include "checkpoint/safetensors.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_header(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const fs::path path = folder.write("a.safetensors", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const SafetensorsFile file(path);
    uint64_t bytes = 0;
    std::vector<TensorSource> sources;
    for (const TensorView& tensor : file.tensors()) {
      KVCAL_CHECK(file.find(tensor.name) == &tensor);
      KVCAL_CHECK(byte_count(tensor.shape, tensor.dtype) == tensor.bytes.size());
      bytes += tensor.bytes.size();
      sources.push_back(source_of(file, tensor));
    }
    KVCAL_CHECK(file.data_offset() + bytes == size);
    const fs::path copy = folder.path() / "copy.safetensors";
    write_safetensors(copy, sources, file.metadata());
    const SafetensorsFile again(copy);
    KVCAL_CHECK(again.tensors().size() == file.tensors().size());
  });
  return 0;
}
