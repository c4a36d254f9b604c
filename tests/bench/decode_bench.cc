// Quantized weights decoded to float32 on two threads, against a copy of as many float32 bytes on
// two threads: bytes per second are those that are written.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/parallel.h"
#include "stored/coded_matrix.h"
#include "stored/integer_matrix.h"
#include "stored/weight_rows.h"
#include "support/scratch_folder.h"

using namespace kvcal;

namespace {

constexpr int64_t kSide = 4096, kRows = 64;

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

std::vector<float>& target() {
  static std::vector<float> values(kSide * kSide);
  return values;
}

/// A tensor whose bytes repeat the given ones; none: random codes.
Tensor tensor(const char* end, DType dtype, Shape shape, std::vector<uint8_t> repeated = {}) {
  Tensor made{std::string("m") + end, dtype, shape, {}};
  made.bytes.resize(byte_count(shape, dtype));
  std::mt19937 random(1);
  for (size_t i = 0; i < made.bytes.size(); ++i)
    made.bytes[i] =
        static_cast<std::byte>(repeated.empty() ? random() & 0xffu : repeated[i % repeated.size()]);
  return made;
}

const std::vector<uint8_t> kHalf{0x1f, 0x21}, kFloat{0, 0, 0, 0x3c}, kCode{0x38}, kExponent{120};

/// A module in a file, and how it is read.
struct Stored {
  explicit Stored(const std::vector<Tensor>& tensors) {
    std::vector<TensorSource> sources;
    for (const Tensor& one : tensors) sources.push_back(source_of(one));
    write_safetensors(scratch / "model.safetensors", std::move(sources), {});
    test::write_file(scratch / "config.json", "{}");
    model_dir = std::make_unique<ModelDir>(scratch.path());
  }
  std::unique_ptr<CodedMatrix> open(const CodeFormat& storage) const {
    const std::string module = "m";
    std::set<std::string, std::less<>> read;
    ModuleTensors tensors(*model_dir, module, read);
    return storage.open(tensors);
  }
  test::ScratchFolder scratch;
  std::unique_ptr<ModelDir> model_dir;
};

void decode_blocks(benchmark::State& state, const std::function<void(int64_t, float*)>& decode) {
  for (auto _ : state) {
    pool().parallel_for(kSide / kRows, [&](int64_t block, int) {
      decode(block * kRows, target().data() + block * kRows * kSide);
    });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kSide * kSide * 4);
}

void add(const std::string& name, std::function<void(benchmark::State&)> run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

void add_storage(const std::string& name, const CodeFormat& storage, std::vector<Tensor> tensors) {
  add(name, [storage, tensors = std::move(tensors)](benchmark::State& state) {
    const Stored stored(tensors);
    const auto matrix = stored.open(storage);
    decode_blocks(state, [&](int64_t first, float* out) { matrix->decode(first, kRows, out); });
  });
  // What opening a checkpoint costs for each such matrix.
}

void add_copy() {
  add("copy", [](benchmark::State& state) {
    const std::vector<float> source(kSide * kSide, 1.0f);
    decode_blocks(state, [&](int64_t first, float* out) {
      std::memcpy(out, source.data() + first * kSide, kRows * kSide * sizeof(float));
    });
  });
}

void add_packed(const char* name, int bits, bool is_symmetric, int64_t group) {
  const int64_t groups = group == 0 ? 1 : kSide / group, words = kSide * bits / 32;
  std::vector<Tensor> tensors{tensor(".weight_packed", DType::kI32, {kSide, words}),
                              tensor(".weight_shape", DType::kI64, {2}, {0, 16, 0, 0, 0, 0, 0, 0}),
                              tensor(".weight_scale", DType::kF16, {kSide, groups}, kHalf)};
  if (!is_symmetric)
    tensors.push_back(tensor(".weight_zero_point", DType::kI32, {kSide * bits / 32, groups}));
  add_storage(name, packed_integers({.bits = bits, .is_symmetric = is_symmetric, .group = group}),
              std::move(tensors));
}

void add_gptq(const char* name, int bits, bool is_ordered) {
  std::vector<Tensor> tensors{tensor(".qweight", DType::kI32, {kSide * bits / 32, kSide}),
                              tensor(".qzeros", DType::kI32, {kSide / 128, kSide * bits / 32}),
                              tensor(".scales", DType::kF16, {kSide / 128, kSide}, kHalf)};
  if (!is_ordered) {
    Tensor index = tensor(".g_idx", DType::kI32, {kSide});
    for (int32_t i = 0; i < kSide; ++i) {
      const int32_t group = i * 7 % (kSide / 128);
      std::memcpy(index.bytes.data() + 4 * i, &group, 4);
    }
    tensors.push_back(std::move(index));
  }
  add_storage(name, gptq_integers({.bits = bits, .group = 128}), std::move(tensors));
}

void add_integers() {
  add_packed("packed INT4 g128", 4, true, 128);
  add_packed("packed INT4 g32, zeros", 4, false, 32);
  add_packed("packed INT3 g128", 3, true, 128);
  add_packed("packed INT8 channel", 8, true, 0);
  add_storage("INT8 channel", packed_integers({.is_packed = false}),
              {tensor(".weight", DType::kI8, {kSide, kSide}),
               tensor(".weight_scale", DType::kF16, {kSide, 1}, kHalf)});
  add_gptq("GPTQ INT4 g128", 4, true);
  add_gptq("GPTQ INT4 g128, desc_act", 4, false);
  add_gptq("GPTQ INT3 g128", 3, true);
  add_gptq("GPTQ INT8 g128", 8, true);
  add_storage("AWQ g128", awq_integers(128),
              {tensor(".qweight", DType::kI32, {kSide, kSide / 8}),
               tensor(".qzeros", DType::kI32, {kSide / 128, kSide / 8}),
               tensor(".scales", DType::kF16, {kSide / 128, kSide}, kHalf)});
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

void add_bitsandbytes() {
  const std::string text =
      R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [4096, 4096],)"
      R"( "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.01})";
  const int64_t blocks = kSide * kSide / 64;
  add_storage("bitsandbytes NF4", bitsandbytes_4bit(),
              {tensor(".weight", DType::kU8, {kSide * kSide / 2, 1}),
               tensor(".weight.quant_state.bitsandbytes__nf4", DType::kU8,
                      {static_cast<int64_t>(text.size())}, bytes_of(text)),
               tensor(".weight.absmax", DType::kU8, {blocks}),
               tensor(".weight.quant_map", DType::kF32, {16}, kFloat),
               tensor(".weight.nested_absmax", DType::kF32, {blocks / 256}, kFloat),
               tensor(".weight.nested_quant_map", DType::kF32, {256}, kFloat)});
  add_storage("bitsandbytes INT8", bitsandbytes_8bit(),
              {tensor(".weight", DType::kI8, {kSide, kSide}),
               tensor(".SCB", DType::kF32, {kSide}, kFloat)});
}

void add_floats() {
  add_storage("NVFP4", fp4_codes({.global_name = ".weight_global_scale", .divides_global = true}),
              {tensor(".weight_packed", DType::kU8, {kSide, kSide / 2}),
               tensor(".weight_scale", DType::kF8E4M3, {kSide, kSide / 16}, kCode),
               tensor(".weight_global_scale", DType::kF32, {1}, kFloat)});
  add_storage("MXFP4", fp4_codes({.group = 32, .has_exponents = true}),
              {tensor(".weight_packed", DType::kU8, {kSide, kSide / 2}),
               tensor(".weight_scale", DType::kU8, {kSide, kSide / 32}, kExponent)});
  add_storage("MXFP8", mxfp8_codes(),
              {tensor(".weight", DType::kF8E4M3, {kSide, kSide}, kCode),
               tensor(".weight_scale", DType::kU8, {kSide, kSide / 32}, kExponent)});
}

void add_fp8(const char* name, int64_t block_rows, int64_t block_columns) {
  add(name, [=](benchmark::State& state) {
    const Tensor codes = tensor("", DType::kF8E4M3, {kSide, kSide}, {0x38, 0x39, 0x12});
    const Tensor scale =
        tensor("", DType::kF32, {kSide / block_rows, kSide / block_columns}, kFloat);
    decode_blocks(state, [&](int64_t first, float* out) {
      TensorView scales = scale.view();
      if (block_rows == 1) scales = rows_of(scales, first, kRows);
      if (block_rows == 128) scales = rows_of(scales, first / 128, 1);
      BlockScaledRows(rows_of(codes.view(), first, kRows), scales, std::min(block_rows, kSide),
                      block_columns)
          .decode(0, kRows, out);
    });
  });
}

}  // namespace

int main(int argc, char** argv) {
  target();  // its pages are no part of the first measurement
  add_copy();
  add_integers();
  add_floats();
  add_bitsandbytes();
  add_fp8("FP8 tensor", kSide, kSide);
  add_fp8("FP8 channel", 1, kSide);
  add_fp8("FP8 blocks of 128", 128, 128);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
