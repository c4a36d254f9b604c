// model.safetensors.index.json in front of two shards.
#include "checkpoint/model_dir.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

namespace {

const fuzz::Folder& model_folder() {
  static const fuzz::Folder folder;
  static const bool is_written = [] {
    for (const char* name :
         {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
      folder.write(name, fuzz::fixture(std::string("checkpoint/sharded/") + name));
    return true;
  }();
  KVCAL_CHECK(is_written);
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Folder& folder = model_folder();
  folder.write(std::string(kIndexFileName), fuzz::text_of(data, size));
  fuzz::accepts([&] {
    ModelDir model_dir(folder.path());
    for (const std::string& name : model_dir.tensor_names()) model_dir.tensor(name);
    model_dir.leave_out({model_dir.tensor_names().front()});
  });
  return 0;
}
