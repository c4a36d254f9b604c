// An archive of arrays of numpy.
#include "checkpoint/npz.h"
#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const fs::path path = folder.write("a.npz", fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const NpzFile file(path);
    for (const NpzEntry& entry : file.entries()) fuzz::accepts([&] { file.array(entry); });
  });
  return 0;
}
