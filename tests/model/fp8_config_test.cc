#include "model/support/fp8_checkpoint.h"

using namespace kvcal;
using test::Checkpoint;
using test::contains;
using test::copy_changed;
using test::Expected;
using test::kSameConfig;
using test::ScratchFolder;

TEST_CASE("a code that is NaN is told with its tensor") {
  for (const char* kind : {"static_kv", "block"})
    for (const auto code : {std::byte{0x7f}, std::byte{0xff}}) {
      INFO(kind);
      const ScratchFolder folder;
      copy_changed(kind, folder.path(), kSameConfig, [&](Tensor& tensor) {
        if (tensor.name == "model.layers.1.mlp.down_proj.weight") tensor.bytes[77] = code;
        return true;
      });
      const Checkpoint checkpoint(folder.path());
      CHECK(contains(test::message_of([&] {
                       checkpoint.logits(Expected(kind).ids, "cpu", ComputeType::kFloat32, 64);
                     }),
                     "model.layers.1.mlp.down_proj.weight holds NaN (codes 7f or ff)"));
    }
}
