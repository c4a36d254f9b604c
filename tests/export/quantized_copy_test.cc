#include "export/quantized_copy.h"

#include "core/process.h"
#include "export/quantized_case.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// A model of one shard: tensors of noise, and what a config needs.
void write_noise(const fs::path& folder, const std::map<std::string, Shape>& tensors) {
  std::vector<TensorSource> sources;
  int i = -1;
  for (const auto& [name, shape] : tensors) {
    ++i;
    sources.push_back({.name = name,
                       .dtype = DType::kF16,
                       .shape = shape,
                       .bytes = {},
                       .file = {},
                       .file_offset = 0,
                       .generate = [i](uint64_t offset, std::span<std::byte> bytes) {
                         for (size_t k = 0; k + 1 < bytes.size(); k += 2) {
                           const uint64_t at =
                               (offset + k) * 2654435761u + static_cast<uint64_t>(i);
                           bytes[k] = static_cast<std::byte>(at >> 9);
                           // Exponents below 2^4, so finite.
                           bytes[k + 1] = static_cast<std::byte>((at >> 17) & 0xcb);
                         }
                       }});
  }
  write_safetensors(folder / "model.safetensors", std::move(sources), {{"format", "pt"}});
  write_file(folder / "config.json", R"({"model_type": "llama", "tie_word_embeddings": false})");
}

/// Some large matrices.
void write_large_model(const fs::path& folder, int num_weights, int64_t rows, int64_t columns) {
  std::map<std::string, Shape> tensors;
  for (int i = 0; i < num_weights; ++i)
    tensors["model.layers." + std::to_string(i) + ".mlp.up_proj.weight"] = Shape{rows, columns};
  write_noise(folder, tensors);
}

Calibration plan_of_large_model(int num_weights, Strategy strategy) {
  Calibration calibration;
  QuantArgs weights;
  weights.type = QuantType::kFloat;
  weights.strategy = strategy;
  weights.observer = "memoryless_minmax";
  calibration.plan.groups = {
      {.targets = {"Linear"}, .weights = weights, .input_activations = {}, .format = {}}};
  for (int i = 0; i < num_weights; ++i)
    calibration.plan.linears.push_back(
        {.module = "model.layers." + std::to_string(i) + ".mlp.up_proj", .layer = i});
  return calibration;
}

Recipe weight_recipe() {
  return parse_recipe(quantized_case("tied_head").at("recipe").get<std::string>());
}

/// Sees how much memory the process holds whenever it is told of progress.
class MemoryWatch : public Diagnostics {
 public:
  void warn(const std::string&) override {}
  void progress(std::string_view, int64_t done, int64_t total, std::string_view) override {
    largest = std::max(largest, resident_bytes());
    CHECK(done > last);
    CHECK(done <= total);
    last = done;
    end = total;
  }
  uint64_t largest = 0;
  int64_t last = 0, end = 0;
};

/// With two threads; all that was announced is done in the end.
void write_watched(const ModelDir& model, const Calibration& calibration, MemoryWatch& watch,
                   const fs::path& target) {
  const Recipe recipe = weight_recipe();
  ThreadPool pool(2);
  kWriters.at("compressed-tensors")
      .make()
      ->write({.model = model,
               .calibration = calibration,
               .recipe = &recipe,
               .pool = &pool,
               .progress = &watch},
              target);
  CHECK(watch.last == watch.end);
}

}  // namespace

TEST_CASE("FP8 weights: where none is quantized, every byte that is copied is told") {
  struct Bytes : SilentDiagnostics {
    void progress(std::string_view stage, int64_t done, int64_t total,
                  std::string_view unit) override {
      CHECK(stage == "writing");
      CHECK(unit == "B");
      CHECK(done > last);
      last = done;
      end = total;
    }
    int64_t last = 0, end = 0;
  } bytes;
  const ScratchFolder scratch, target;
  write_large_model(scratch.path(), 2, 64, 128);
  const ModelDir model(scratch.path());
  const Calibration nothing;
  write_weights({.model = model, .calibration = nothing, .progress = &bytes}, {}, target.path(),
                nullptr);
  CHECK(bytes.last == bytes.end);
  CHECK(static_cast<uint64_t>(bytes.end) == fs::file_size(scratch / "model.safetensors"));
  CHECK(read_text(target / "model.safetensors") == read_text(scratch / "model.safetensors"));
}

TEST_CASE("FP8 weights: memory holds a weight, its scales and two buffers, not the shard") {
  constexpr int kWeights = 8;
  constexpr uint64_t kMiB = uint64_t{1} << 20, kWeightBytes = 16 * kMiB;
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kChannel}) {
    const ScratchFolder scratch;
    write_large_model(scratch.path(), kWeights, 2048, 4096);
    const ModelDir model(scratch.path());
    const Calibration calibration = plan_of_large_model(kWeights, strategy);
    MemoryWatch watch;
    const ScratchFolder target;
    const uint64_t before = resident_bytes();
    write_watched(model, calibration, watch, target.path());
    CHECK(watch.end == 2 * kWeights * 2048 * 4096);
    INFO("held " << watch.largest / kMiB << " MiB, before " << before / kMiB);
    // A weight, two buffers of 8 MiB, and as much again for tables, stacks and the allocator.
    CHECK(watch.largest < before + kWeightBytes + 32 * kMiB);
    CHECK(fs::file_size(target / "model.safetensors") > kWeights * kWeightBytes / 2);
  }
}

/// The address sanitizer keeps so much of what was freed, to see it used again.
#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kKeptAfterFree = uint64_t{256} << 20;
#else
constexpr uint64_t kKeptAfterFree = 0;
#endif

TEST_CASE("FP8 weights: of stacked experts memory holds one expert and two buffers") {
  constexpr int64_t kExperts = 8, kInputs = 2048, kOutputs = 4096;
  constexpr uint64_t kMiB = uint64_t{1} << 20, kExpertBytes = kInputs * kOutputs * 2;
  const ScratchFolder scratch;
  write_noise(scratch.path(),
              {{"model.layers.0.mlp.experts.gate_up_proj", Shape{kExperts, kInputs, kOutputs}}});
  const ModelDir model(scratch.path());
  Calibration calibration = plan_of_large_model(0, Strategy::kChannel);
  for (int64_t i = 0; i < kExperts; ++i)
    for (const int64_t part : {0, 1}) {
      const std::string module = "model.layers.0.mlp.experts." + std::to_string(i) +
                                 (part == 0 ? ".gate_proj" : ".up_proj");
      calibration.plan.split.push_back(
          {.name = module + ".weight",
           .slice = {.tensor = "model.layers.0.mlp.experts.gate_up_proj",
                     .index = i,
                     .part = part,
                     .parts = 2,
                     .is_transposed = true,
                     .is_interleaved = true}});
      if (part == 0) calibration.plan.linears.push_back({.module = module, .layer = 0});
    }
  MemoryWatch watch;
  const ScratchFolder target;
  const uint64_t before = resident_bytes();
  write_watched(model, calibration, watch, target.path());
  INFO("held " << watch.largest / kMiB << " MiB, before " << before / kMiB);
  // The pages of an expert, two that are put together, two buffers of 8 MiB, and the rest.
  CHECK(watch.largest < before + 2 * kExpertBytes + 32 * kMiB + kKeptAfterFree);
  const ModelDir written(target.path());
  CHECK(written.tensor("model.layers.0.mlp.experts.7.gate_proj.weight").dtype == DType::kF8E4M3);
  CHECK(written.tensor("model.layers.0.mlp.experts.7.up_proj.weight").shape ==
        Shape{kOutputs / 2, kInputs});
  CHECK(!written.find("model.layers.0.mlp.experts.gate_up_proj"));
}

TEST_CASE("FP8 weights: what is no number stops the run, and nothing appears") {
  const ScratchFolder scratch;
  write_large_model(scratch.path(), 1, 3, 5);
  {
    std::string bytes = read_text(scratch / "model.safetensors");
    bytes[bytes.size() - 1] = 0x7e;  // the last value's exponent
    write_file(scratch / "model.safetensors", bytes);
  }
  const ModelDir model(scratch.path());
  const Calibration calibration = plan_of_large_model(1, Strategy::kTensor);
  const Recipe recipe = weight_recipe();
  const fs::path target = scratch / "out";
  const auto run = [&] {
    AtomicDirectory output(target, false);
    const ExportInput input{.model = model, .calibration = calibration, .recipe = &recipe};
    kWriters.at("compressed-tensors").make()->check(input);
    kWriters.at("compressed-tensors").make()->write(input, output.path());
    output.commit();
  };
  CHECK(contains(message_of(run), "model.layers.0.mlp.up_proj.weight"));
  CHECK(!fs::exists(target));
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    CHECK((entry.path().filename() == "config.json" ||
           entry.path().filename() == "model.safetensors"));
}
