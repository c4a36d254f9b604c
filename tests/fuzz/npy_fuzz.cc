// An array of numpy.
#include "checkpoint/npz.h"
#include "support/fuzz.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const TensorView view = parse_npy("a", std::as_bytes(std::span(data, size)));
    KVCAL_CHECK(byte_count(view.shape, view.dtype) == view.bytes.size());
  });
  return 0;
}
