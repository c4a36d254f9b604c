// Experts that a checkpoint stacks in one tensor, from recipe to logits. llm-compressor and
// transformers are the judges (reference/llmcompressor_stacked.py).
#include <algorithm>
#include <cmath>
#include <sstream>

#include "calib/plan/resolve_plan.h"
#include "calib/scales/derive.h"
#include "core/hash.h"
#include "export/writer.h"
#include "forward/decoder.h"
#include "stored/fp8_checkpoint.h"
#include "support/backend_list.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "support/step_all.h"

using namespace kvcal;
using test::contains;
using test::ScratchFolder;

namespace {

const std::vector<std::string> kModels{"granitemoe", "granitemoehybrid_moe", "gpt_oss"};

fs::path model_folder(const std::string& name) {
  return test::tests_folder() / "fixtures" / "models" / name;
}

fs::path reference_file(const std::string& name) {
  return test::tests_folder() / "fixtures" / "llmcompressor" / name;
}

const Json& reference_of(const std::string& model) {
  static const Json all = parse_json(read_text(reference_file("stacked.json")));
  return all.at("models").at(model);
}

/// A source, and what a recipe makes of it.
class Output {
 public:
  Output(const fs::path& source, const std::string& recipe_text, bool in_model_dtype = true)
      : source_(source), config_(read_model_config(source_)), recipe_(parse_recipe(recipe_text)) {
    SilentDiagnostics silent;
    calibration_ =
        empty_calibration(resolve_plan(recipe_, config_, silent), config_, KvDType::kFp8E4m3);
    ThreadPool pool(2);
    const ExportInput input{.model = source_,
                            .calibration = calibration_,
                            .recipe = &recipe_,
                            .scale_in_model_dtype = in_model_dtype,
                            .pool = &pool};
    const auto writer = kWriters.at("compressed-tensors").make();
    writer->check(input);
    writer->write(input, scratch_.path());
    notes_ = writer->notes(input);
    written_.emplace(scratch_.path());
  }

  const fs::path& path() const { return scratch_.path(); }
  const ModelDir& source() const { return source_; }
  const ModelDir& written() const { return *written_; }
  const QuantPlan& plan() const { return calibration_.plan; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  ModelDir source_;
  ModelConfig config_;
  Recipe recipe_;
  Calibration calibration_;
  ScratchFolder scratch_;
  std::vector<std::string> notes_;
  std::optional<ModelDir> written_;
};

std::string sha_of(const TensorView& tensor) {
  Sha256 sha;
  sha.update(tensor.bytes);
  return sha.hex();
}

/// As llmcompressor_stacked.py makes it.
std::string digest_of(const ModelDir& model) {
  std::vector<std::string> names = model.tensor_names();
  std::ranges::sort(names);
  std::ostringstream lines;
  for (const std::string& name : names) {
    const TensorView& tensor = model.tensor(name);
    lines << name << ' ' << tensor.dtype << ' ' << tensor.shape << ' ' << sha_of(tensor) << '\n';
  }
  return sha256_hex(lines.str());
}

std::vector<std::string> ignored_by(const Json& config) {
  auto names = config.get<std::vector<std::string>>();
  std::ranges::sort(names);
  return names;
}

/// [tokens, vocab] of a checkpoint as generate opens it.
std::vector<float> logits_of(const fs::path& folder, const std::vector<TokenId>& ids) {
  const ModelDir model_dir(folder);
  const ModelConfig config = read_model_config(model_dir);
  const auto quantization = read_checkpoint_quantization(model_dir, config);
  const Weights weights(model_dir, config, &quantization);
  const auto backend = test::make_backend("cpu", 2);
  Decoder decoder(config, weights, *backend, ComputeType::kFloat32);
  KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, static_cast<int64_t>(ids.size()));
  return test::step_all(decoder, ids, cache);
}

/// Largest difference, relative to the largest of expected.
double distance(const std::vector<float>& found, const TensorView& expected) {
  const auto wanted = expected.as<float>();
  REQUIRE(found.size() == wanted.size());
  double largest = 0.0, difference = 0.0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(wanted[i])));
    difference = std::max(difference, std::fabs(static_cast<double>(found[i]) - wanted[i]));
  }
  return difference / largest;
}

std::string recipe_of(const std::string& model, const std::string& run) {
  return reference_of(model).at("runs").at(run).at("recipe").get<std::string>();
}

}  // namespace

TEST_CASE("stacked experts: every tensor and the ignore list are llm-compressor's") {
  for (const std::string& model : kModels)
    for (const auto& [run, expected] : reference_of(model).at("runs").items()) {
      INFO(model << ", recipe " << run);
      const Output output(model_folder(model), recipe_of(model, run));
      CHECK(digest_of(output.written()) == expected.at("digest").get<std::string>());
      CHECK(ignored_by(output.written().config().at("quantization_config").at("ignore")) ==
            ignored_by(expected.at("ignore")));
    }
}

TEST_CASE("stacked experts: split weights in FP8 give the logits of the stacked model with them") {
  const SafetensorsFile expected(reference_file("stacked.safetensors"));
  for (const std::string& model : kModels) {
    INFO(model);
    const auto ids = reference_of(model).at("ids").get<std::vector<TokenId>>();
    const Output output(model_folder(model), recipe_of(model, "block"));
    CHECK(distance(logits_of(output.path(), ids), *expected.find(model + ".weights")) <= 1e-4);
    // Without them it is another model.
    CHECK(distance(logits_of(model_folder(model), ids), *expected.find(model + ".weights")) > 1e-3);
  }
}

TEST_CASE("stacked experts: so do those whose inputs have a scale for each token") {
  const SafetensorsFile expected(reference_file("stacked.safetensors"));
  for (const std::string& model : kModels) {
    INFO(model);
    const auto ids = reference_of(model).at("ids").get<std::vector<TokenId>>();
    const Output output(model_folder(model), recipe_of(model, "channel"));
    // A value on the edge of two codes may fall to either side.
    CHECK(distance(logits_of(output.path(), ids), *expected.find(model + ".inputs")) <= 2e-3);
  }
}

TEST_CASE("stacked experts: split ones in 16 bits run as the stacked ones do") {
  for (const std::string& model : kModels) {
    INFO(model);
    const auto ids = reference_of(model).at("ids").get<std::vector<TokenId>>();
    // All experts but one projection stay as they are; that one is put back from the source.
    const Output output(
        model_folder(model),
        "s_stage: {m_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, targets: "
        "['re:.*experts.0.down_proj$'], ignore: []}}}");
    const ScratchFolder plain;
    Json config = output.written().config();
    config.erase("quantization_config");
    test::write_file(plain / "config.json", dump_json(config));
    const SafetensorsFile& file = output.written().shards().front();
    std::vector<Tensor> restored;
    std::vector<TensorSource> sources;
    for (const SplitTensor& one : output.plan().split) {
      const TensorView& stacked = output.source().tensor(one.slice.tensor);
      const SliceValues values = values_of(stacked, one.slice);
      if (output.written().tensor(one.name).dtype == DType::kF8E4M3)
        restored.push_back({one.name,
                            stacked.dtype,
                            values.view.shape,
                            {values.view.bytes.begin(), values.view.bytes.end()}});
    }
    for (const Tensor& tensor : restored) sources.push_back(source_of(tensor));
    for (const TensorView& tensor : file.tensors())
      if (tensor.dtype != DType::kF8E4M3 && !tensor.name.ends_with("_scale"))
        sources.push_back(source_of(file, tensor));
    REQUIRE(!restored.empty());
    write_safetensors(plain / "model.safetensors", sources, {{"format", "pt"}});
    CHECK(logits_of(plain.path(), ids) == logits_of(model_folder(model), ids));
    // A source with experts of their own is quantized like one that stacks them.
    const Output again(plain.path(), recipe_of(model, "partial"));
    CHECK(digest_of(again.written()) == reference_of(model).at("runs").at("partial").at("digest"));
  }
}

TEST_CASE("stacked experts: of which none is quantized are copied as they are") {
  for (const std::string& model : kModels) {
    INFO(model);
    const Output output(
        model_folder(model),
        "s_stage: {m_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, targets: "
        "[Linear], ignore: [lm_head, 're:.*experts.*']}}}");
    CHECK(output.plan().split.empty());
    size_t stacked = 0;
    for (const std::string& name : output.source().tensor_names()) {
      if (output.source().tensor(name).shape.rank() < 3 || contains(name, "conv")) continue;
      ++stacked;
      INFO(name);
      CHECK(sha_of(output.written().tensor(name)) == sha_of(output.source().tensor(name)));
    }
    CHECK(stacked >= 4);
    // vLLM asks for the experts by these names.
    const auto ignore =
        ignored_by(output.written().config().at("quantization_config").at("ignore"));
    CHECK(std::ranges::count_if(ignore, [](const std::string& name) {
            return name.ends_with(".experts.0.gate_proj");
          }) > 0);
    CHECK(output.notes().empty());
    const auto ids = reference_of(model).at("ids").get<std::vector<TokenId>>();
    CHECK(!logits_of(output.path(), ids).empty());
  }
}

TEST_CASE("stacked experts: a layer's are split where one of them is quantized, another's not") {
  const Output output(
      model_folder("gpt_oss"),
      "s_stage: {m_modifiers: {QuantizationModifier: {scheme: FP8_DYNAMIC, targets: "
      "['re:.*layers.1.mlp.experts.2.up_proj']}}}");
  CHECK(output.written().find("model.layers.0.mlp.experts.gate_up_proj"));
  CHECK(!output.written().find("model.layers.1.mlp.experts.gate_up_proj"));
  CHECK(output.written().tensor("model.layers.1.mlp.experts.2.up_proj.weight").dtype ==
        DType::kF8E4M3);
  CHECK(output.written().tensor("model.layers.1.mlp.experts.2.gate_proj.weight").dtype ==
        DType::kBF16);
  CHECK(output.written().tensor("model.layers.1.mlp.experts.3.down_proj.bias").shape == Shape{48});
  const auto ids = reference_of("gpt_oss").at("ids").get<std::vector<TokenId>>();
  CHECK(!logits_of(output.path(), ids).empty());
}

TEST_CASE("stacked experts: the user is told who does not load split ones") {
  const Output output(model_folder("granitemoe"), recipe_of("granitemoe", "tensor"));
  CHECK(std::ranges::any_of(output.notes(), [](const std::string& note) {
    return contains(note, "model.layers.0.block_sparse_moe.experts.0.gate_proj") &&
           contains(note, "transformers 5.17");
  }));
  const auto notes_biases = [](const std::string& note) {
    return contains(note, "experts.0.gate_proj.bias: the loader of vLLM 0.32 stops");
  };
  CHECK(std::ranges::none_of(output.notes(), notes_biases));
  const Output biased(model_folder("gpt_oss"), recipe_of("gpt_oss", "tensor"));
  CHECK(std::ranges::any_of(biased.notes(), notes_biases));
}

TEST_CASE("stacked experts: of split ones a missing tensor is named") {
  const Output output(model_folder("gpt_oss"), recipe_of("gpt_oss", "channel"));
  const ScratchFolder broken;
  fs::copy(output.path() / "config.json", broken / "config.json");
  const SafetensorsFile& file = output.written().shards().front();
  std::vector<TensorSource> sources;
  for (const TensorView& tensor : file.tensors())
    if (tensor.name != "model.layers.1.mlp.experts.3.up_proj.weight" &&
        tensor.name != "model.layers.0.mlp.experts.2.down_proj.bias" &&
        tensor.name != "model.layers.2.mlp.experts.0.gate_proj.weight_scale")
      sources.push_back(source_of(file, tensor));
  write_safetensors(broken / "model.safetensors", sources, {{"format", "pt"}});
  const std::string message = test::message_of([&] { logits_of(broken.path(), {5, 6}); });
  CHECK(contains(message, "missing: model.layers.1.mlp.experts.3.up_proj.weight [16, 48]"));
  CHECK(contains(message, "missing: model.layers.0.mlp.experts.2.down_proj.bias [48]"));
  CHECK(contains(message, "missing: model.layers.2.mlp.experts.0.gate_proj.weight_scale"));
}
