// The file of statistics.
#include "export/statistics_file.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_header(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const auto path = folder.write("a.safetensors", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const Statistics statistics = read_statistics(path);
    write_statistics(folder.path() / "copy.safetensors", statistics, true);
    const Statistics again = read_statistics(folder.path() / "copy.safetensors");
    KVCAL_CHECK(again.attention.size() == statistics.attention.size());
  });
  return 0;
}
