// The file of statistics.
#include "export/statistics_file.h"

#include <string>

#include "core/file.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_header(data, size, max_size, seed);
}

namespace {

/// Gives the file the hash of what it holds, so that not all ends there.
void seal(const fs::path& path, std::string text) {
  std::string old, now;
  {
    const SafetensorsFile file(path);
    const auto found = file.metadata().find("sha256");
    if (found == file.metadata().end()) return;
    old = found->second;
    now = statistics_sha256(file);
  }
  const size_t place = old.size() == now.size() ? text.find(old) : std::string::npos;
  if (place == std::string::npos) return;
  write_file_atomically(path, text.replace(place, now.size(), now), true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const auto path = folder.write("a.safetensors", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    seal(path, std::string(fuzz::text_of(data, size)));
    const Statistics statistics = read_statistics(path);
    write_statistics(folder.path() / "copy.safetensors", statistics, true);
    const Statistics again = read_statistics(folder.path() / "copy.safetensors");
    KVCAL_CHECK(again.attention.size() == statistics.attention.size());
  });
  return 0;
}
