#include "backend/backend.h"

#include "support/catch.h"

namespace kvcal {
namespace {

TEST_CASE("compute types: names and sizes") {
  CHECK(name_of(ComputeType::kFloat32) == "float32");
  CHECK(name_of(ComputeType::kBFloat16) == "bfloat16");
  CHECK(name_of(ComputeType::kFloat16) == "float16");
  CHECK(bytes_of(ComputeType::kFloat32) == 4);
  CHECK(bytes_of(ComputeType::kBFloat16) == 2);
}

/// Counts what is given back; computes nothing.
class CountingBackend : public Backend {
 public:
  int freed = 0;

  std::string_view name() const override { return "counting"; }
  std::string description() const override { return "counting"; }
  bool supports(ComputeType) const override { return false; }
  ComputeType preferred_compute_type() const override { return ComputeType::kFloat32; }
  int64_t preferred_batch_tokens(int64_t) const override { return 1; }
  Buffer allocate(size_t bytes) override { return {this, new std::byte[bytes], bytes}; }
  void free(std::byte* data, size_t) noexcept override {
    delete[] data;
    ++freed;
  }
  void copy_in(std::span<const std::byte>, std::byte*) override {}
  void copy_out(const std::byte*, std::span<std::byte>) override {}
  void fill_zero(std::byte*, size_t) override {}
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView>, ComputeType) override {
    return nullptr;
  }
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView>,
                                         std::span<const float>) override {
    return nullptr;
  }
  void embed(const EmbedArgs&) override {}
  void norm(const NormArgs&) override {}
  void norm_heads(const NormHeadsArgs&) override {}
  void matmul(const MatmulArgs&) override {}
  void rope(const RopeArgs&) override {}
  void observe_kv(const ObserveKvArgs&) override {}
  void observe_rows(const ObserveRowsArgs&) override {}
  void store_kv(const StoreKvArgs&) override {}
  void load_kv(const LoadKvArgs&) override {}
  void copy_heads(const CopyHeadsArgs&) override {}
  void attention(const AttentionArgs&) override {}
  void activate(const ActivationArgs&) override {}
  void add(const AddArgs&) override {}
  void multiply_gate(const MultiplyGateArgs&) override {}
  void gated_norm(const GatedNormArgs&) override {}
  void causal_conv(const CausalConvArgs&) override {}
  void ssm_scan(const SsmScanArgs&) override {}
  void delta_scan(const DeltaScanArgs&) override {}
  void gather_rows(const GatherRowsArgs&) override {}
  void scatter_add(const ScatterAddArgs&) override {}
  void observe_amax(const ObserveAmaxArgs&) override {}
  void quantize_rows(const QuantizeRowsArgs&) override {}
  void matmul_fp8(const Fp8MatmulArgs&) override {}
};

TEST_CASE("buffer: gives its memory back once, moved or assigned") {
  CountingBackend backend;
  {
    Buffer first = backend.allocate(8);
    Buffer second = std::move(first);
    CHECK(first.data() == nullptr);
    CHECK(first.size() == 0);
    CHECK(second.size() == 8);
    second = backend.allocate(16);
    CHECK(second.size() == 16);
    CHECK(backend.freed == 1);
  }
  CHECK(backend.freed == 2);
}

}  // namespace
}  // namespace kvcal
