// A data set: the first byte says under which ending, the rest is the file.
#include "datasets/dataset.h"

#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  if (size < 2 || seed % 8 == 0) {
    if (size > 0 && seed % 16 == 0) data[0] = static_cast<uint8_t>(seed >> 8);
    return std::max(size, size_t{size == 0 ? 0u : 1u});
  }
  return 1 + fuzz::mutate_json(data + 1, size - 1, max_size - 1, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kNames[] = {"a.jsonl", "a.json", "a.txt", "a", "a.csv", "a.tsv"};
  static const fuzz::Folder folder;
  if (size == 0) return 0;
  const std::filesystem::path path =
      folder.write(kNames[data[0] % std::size(kNames)], fuzz::text_of(data + 1, size - 1));
  std::unique_ptr<Dataset> dataset;
  if (!fuzz::accepts([&] { dataset = open_dataset(path); })) return 0;
  KVCAL_CHECK(dataset->size() > 0);
  for (int64_t i = 0; i < std::min(dataset->size(), int64_t{50}); ++i)
    fuzz::accepts([&] { KVCAL_CHECK(!dataset->record(i).place.empty()); });
  fuzz::accepts([&] { dataset->whole_text(); });
  dataset->sha256();
  return 0;
}
