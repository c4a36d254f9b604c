#include <limits>

#include "core/hash.h"
#include "export/quantized_case.h"
#include "quant/fp8.h"
#include "quant/half.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const std::vector<std::string> kCases{"static_kv",  "dynamic",       "fused",     "block",
                                      "mixed",      "attention",     "tied_head", "tied_embedding",
                                      "tied_alike", "tied_different"};

std::string digest(const TensorView& tensor) {
  Sha256 sha;
  sha.update(tensor.bytes);
  return sha.hex().substr(0, 16);
}

/// What a compressed-tensors writer makes of input.
class Output {
 public:
  explicit Output(const ExportInput& input) {
    const auto writer = kWriters.at("compressed-tensors").make();
    writer->check(input);
    summary = writer->write(input, scratch_.path());
    model.emplace(scratch_.path());
  }
  fs::path path() const { return scratch_.path(); }

  WrittenCheckpoint summary;
  std::optional<ModelDir> model;

 private:
  ScratchFolder scratch_;
};

Output written_like_theirs(const QuantizedParts& parts) {
  ExportInput input = parts.input();
  input.scale_in_model_dtype = true;
  return Output(input);
}

/// [name, dtype, shape, digest] of the case's file; where a head stays tied with the scales that
/// transformers looks for and llm-compressor leaves out.
std::vector<Json> expected_tensors(const Json& test_case, const QuantPlan& plan) {
  std::vector<Json> tensors = test_case.at("tensors").get<std::vector<Json>>();
  if (plan.tied_head.empty() || plan.unties_embedding ||
      plan.linears.front().module != plan.tied_embedding)
    return tensors;
  const auto scale =
      std::ranges::find(tensors, "model.embed_tokens.weight_scale",
                        [](const Json& tensor) { return tensor[0].get<std::string>(); });
  Json head = *scale;
  head[0] = "lm_head.weight_scale";
  tensors.insert(tensors.begin(), head);
  return tensors;
}

float value_at(const TensorView& tensor, size_t index) {
  if (tensor.dtype == DType::kF16) return to_float(tensor.as<F16>()[index]);
  if (tensor.dtype == DType::kBF16) return to_float(tensor.as<BF16>()[index]);
  return tensor.as<float>()[index];
}

float in_dtype_of(const TensorView& tensor, float value) {
  if (tensor.dtype == DType::kF16) return to_float(to_f16(value));
  return to_float(to_bf16(value));
}

}  // namespace

TEST_CASE("FP8 weights: tensor for tensor, byte for byte what llm-compressor saves") {
  for (const std::string& name : kCases) {
    INFO("case " << name);
    const QuantizedParts parts(name);
    const Output output = written_like_theirs(parts);
    const std::vector<Json> expected =
        expected_tensors(quantized_case(name), parts.calibration.plan);
    CHECK(output.model->tensor_names().size() == expected.size());
    for (const Json& tensor : expected) {
      const auto tensor_name = tensor[0].get<std::string>();
      INFO(tensor_name);
      const TensorView* found = output.model->find(tensor_name);
      REQUIRE(found);
      CHECK(name_of(found->dtype) == tensor[1].get<std::string>());
      CHECK(found->shape == Shape(tensor[2].get<std::vector<int64_t>>()));
      if (!tensor_name.ends_with("q_scale")) CHECK(digest(*found) == tensor[3].get<std::string>());
    }
    if (output.model->index()) continue;
    const auto& tensors = output.model->shards().front().tensors();
    for (size_t i = 0; i < tensors.size(); ++i)
      CHECK(tensors[i].name == expected[i][0].get<std::string>());
  }
}

TEST_CASE("FP8 weights: quantization_config and tie_word_embeddings are llm-compressor's") {
  for (const std::string& name : kCases) {
    INFO("case " << name);
    const QuantizedParts parts(name);
    const Output output = written_like_theirs(parts);
    CHECK(dump_json(output.model->config().at("quantization_config")) ==
          dump_json(sorted_keys(quantized_case(name).at("quantization_config"))));
    CHECK(output.model->config().at("tie_word_embeddings") ==
          quantized_case(name).at("tie_word_embeddings"));
    for (const auto& [key, value] : parts.model.config().items())
      if (key != "tie_word_embeddings") CHECK(output.model->config().at(key) == value);
  }
}

TEST_CASE("FP8 weights: by default scales are float32, and codes of quotients in float32") {
  for (const std::string name : {"static_kv", "block", "dynamic"}) {
    const QuantizedParts parts(name);
    const Output output(parts.input());
    for (const PlannedLinear& linear : parts.calibration.plan.linears) {
      INFO(name << ", " << linear.module);
      const TensorView& source = parts.model.tensor(linear.module + ".weight");
      const TensorView& codes = output.model->tensor(linear.module + ".weight");
      const TensorView& scale = output.model->tensor(linear.module + ".weight_scale");
      REQUIRE(scale.dtype == DType::kF32);
      const int64_t rows = source.shape[0], columns = source.shape[1];
      const bool is_block = name == "block", is_channel = name == "dynamic";
      const int64_t block_rows = is_block ? 32 : is_channel ? 1 : rows;
      const int64_t block_columns = is_block ? 32 : columns;
      const int64_t grid_columns = (columns + block_columns - 1) / block_columns;
      std::vector<float> amax(element_count(scale.shape));
      size_t wrong = 0;
      for (int64_t i = 0; i < rows * columns; ++i) {
        const auto block = static_cast<size_t>(i / columns / block_rows * grid_columns +
                                               i % columns / block_columns);
        const float value = value_at(source, static_cast<size_t>(i));
        amax[block] = std::max(amax[block], std::fabs(value));
        const uint8_t code =
            fp8::encode(value / scale.as<float>()[block] + 0.0f, fp8::Format::kE4m3Fn);
        wrong += static_cast<uint8_t>(codes.bytes[static_cast<size_t>(i)]) != code;
      }
      CHECK(wrong == 0);
      for (size_t i = 0; i < amax.size(); ++i) {
        // Where the scale in the weight's own dtype reconstructs better, it is taken.
        const float wanted = amax[i] / 448.0f, found = scale.as<float>()[i];
        CHECK((found == wanted || found == in_dtype_of(source, wanted)));
      }
    }
    for (const LinearCalibration& linear : parts.calibration.linears)
      CHECK(output.model->tensor(linear.module + ".input_scale").as<float>()[0] ==
            linear.input_scale.value);
  }
}

TEST_CASE("FP8 weights: what is not quantized keeps its bytes, shard and metadata") {
  for (const std::string name : {"dynamic", "mixed"}) {
    const QuantizedParts parts(name);
    const Output output(parts.input());
    CHECK(output.model->shard_names() == parts.model.shard_names());
    for (size_t i = 0; i < parts.model.shards().size(); ++i) {
      const SafetensorsFile &before = parts.model.shards()[i], &after = output.model->shards()[i];
      CHECK(after.metadata() == before.metadata());
      for (const TensorView& tensor : before.tensors()) {
        INFO(tensor.name);
        const TensorView* found = after.find(tensor.name);
        REQUIRE(found);
        if (found->dtype != DType::kF8E4M3) CHECK(std::ranges::equal(found->bytes, tensor.bytes));
      }
    }
    if (!parts.model.index()) continue;
    uint64_t total_size = 0;
    for (const std::string& tensor : output.model->tensor_names())
      total_size += output.model->tensor(tensor).bytes.size();
    CHECK(output.model->index()->at("metadata").at("total_size") == total_size);
  }
}

TEST_CASE("FP8 weights: scales go to the shard of their module, and a shard may stay as it is") {
  // The first shard's Linears alone, and KV scales of the second's layer.
  QuantizedParts parts("dynamic");
  std::erase_if(parts.plan().linears,
                [](const PlannedLinear& linear) { return linear.layer != 0; });
  {
    const Output output(parts.input());
    const std::string second = parts.model.shard_names()[1];
    CHECK(read_text(output.path() / second) == read_text(parts.model.path() / second));
  }
  parts.calibration.kv_args.type = QuantType::kFloat;
  for (const int64_t layer : {0, 1}) {
    AttentionCalibration attention{.layer = layer,
                                   .module = "model.layers." + std::to_string(layer) + ".self_attn",
                                   .k = {},
                                   .v = {}};
    attention.k.scales = attention.v.scales = {{0.5f}};
    parts.calibration.layers.push_back(attention);
  }
  const Output output(parts.input());
  CHECK(output.model->shards()[0].find("model.layers.0.self_attn.k_scale") != nullptr);
  CHECK(output.model->shards()[1].find("model.layers.1.self_attn.v_scale") != nullptr);
  CHECK(output.model->shards().size() == 2);
  CHECK(!output.model->config().at("quantization_config").at("kv_cache_scheme").is_null());
}

TEST_CASE("FP8 weights: the same bytes for any number of threads") {
  for (const std::string& name : kCases) {
    INFO("case " << name);
    const QuantizedParts parts(name);
    ThreadPool one(1), two(2);
    const auto alone = written("compressed-tensors", parts.input());
    CHECK((written("compressed-tensors", parts.input(&one)) == alone));
    CHECK((written("compressed-tensors", parts.input(&two)) == alone));
  }
}

TEST_CASE("FP8 weights: the summary is of the weight and of what was written") {
  const QuantizedParts parts("tied_different");
  const Output output(parts.input());
  REQUIRE(output.summary.weights.size() == 2);
  const TensorView& source = parts.model.tensor("model.embed_tokens.weight");
  float amax = 0.0f;
  for (size_t i = 0; i < element_count(source.shape); ++i)
    amax = std::max(amax, std::fabs(value_at(source, i)));
  for (const auto& [module, summary] : output.summary.weights) {
    CHECK(summary.amax.value().value == amax);
    const auto scales = output.model->tensor(module + ".weight_scale").as<float>();
    CHECK(summary.largest_scale.value == *std::ranges::max_element(scales));
  }
}

TEST_CASE("tied weights: a head that lies in the file all the same is written anew or left out") {
  for (const std::string name :
       {"mixed", "tied_head", "tied_embedding", "tied_alike", "tied_different"}) {
    INFO("case " << name);
    QuantizedParts parts(name);
    const ScratchFolder scratch;
    fs::copy(parts.model.path() / "config.json", scratch / "config.json");
    const Tensor stale{
        "lm_head.weight", DType::kBF16, {160, 48}, std::vector<std::byte>(160 * 48 * 2)};
    std::vector<TensorSource> sources{source_of(stale)};
    for (const TensorView& tensor : parts.model.shards()[0].tensors())
      sources.push_back(source_of(parts.model.shards()[0], tensor));
    write_safetensors(scratch / "model.safetensors", sources, {{"format", "pt"}});
    const ModelDir model(scratch.path());
    const Output without(parts.input());
    const Output with({.model = model, .calibration = parts.calibration, .recipe = &parts.recipe});
    if (name == "mixed") {
      // Nothing of it is quantized: it stays what it was.
      CHECK(std::ranges::equal(with.model->tensor("lm_head.weight").bytes, stale.bytes));
    } else {
      CHECK(read_text(with.path() / "model.safetensors") ==
            read_text(without.path() / "model.safetensors"));
    }
  }
}

TEST_CASE("tied weights: both levels of a multimodal config are untied") {
  const ScratchFolder scratch;
  const QuantizedParts parts("tied_head");
  fs::copy(parts.model.path() / "model.safetensors", scratch / "model.safetensors");
  Json config = parts.model.config();
  config.erase("tie_word_embeddings");
  config["text_config"] = {{"hidden_size", 48}};
  write_file(scratch / "config.json", dump_json(config));
  const ModelDir model(scratch.path());
  const Output output({.model = model, .calibration = parts.calibration, .recipe = &parts.recipe});
  CHECK(output.model->config().at("tie_word_embeddings") == false);
  CHECK(output.model->config().at("text_config").at("tie_word_embeddings") == false);
}

TEST_CASE(
    "FP8 weights: a plan that does not fit the model, and inputs without scale, are refused") {
  const auto refused = [](const std::string& name, auto change) {
    QuantizedParts parts(name);
    change(parts);
    return refusal("compressed-tensors", parts.input());
  };
  CHECK(refused("static_kv", [](QuantizedParts&) {}) == "no error");
  CHECK(
      contains(refused("static_kv",
                       [](QuantizedParts& p) { p.plan().linears[0].module = "model.layers.9.x"; }),
               "model.layers.9.x: its input has no scale"));
  CHECK(
      contains(refused("dynamic",
                       [](QuantizedParts& p) { p.plan().linears[0].module = "model.layers.9.x"; }),
               "has no tensor model.layers.9.x.weight to quantize"));
  CHECK(contains(
      refused("dynamic", [](QuantizedParts& p) { p.plan().linears[0].module = "model.norm"; }),
      "model.norm.weight is BF16 [48], expected a matrix"));
  CHECK(contains(refused("static_kv", [](QuantizedParts& p) { p.calibration.linears.pop_back(); }),
                 "its input has no scale"));
  CHECK(contains(refused("static_kv",
                         [](QuantizedParts& p) { p.calibration.linears[2].input_scale = {0.0f}; }),
                 ": scale 0 of its input, expected a scale from 1.2e-38 to 5.9e33"));
  CHECK(contains(refused("dynamic",
                         [](QuantizedParts& p) {
                           p.calibration.linears.push_back(
                               {.module = "m", .input_amax = {}, .input_scale = {}});
                         }),
                 "m: has a scale of its input, and the plan none"));
  CHECK(contains(
      refused("block",
              [](QuantizedParts& p) { p.plan().groups[0].weights->block_structure.reset(); }),
      "model.layers.0."));
}

TEST_CASE("FP8 weights: an input of zeros has the scale of its dtype's epsilon") {
  QuantizedParts parts("static_kv");
  parts.calibration.linears[0].input_scale = {std::numeric_limits<float>::min()};
  const std::string name = parts.calibration.linears[0].module + ".input_scale";
  CHECK(to_float(written_like_theirs(parts).model->tensor(name).as<F16>()[0]) == 0x1p-10f);
  const Output by_default(parts.input());
  CHECK(by_default.model->tensor(name).as<float>()[0] == std::numeric_limits<float>::min());
}

TEST_CASE("FP8 weights: a static input's scale that its dtype cannot hold is refused") {
  QuantizedParts parts("static_kv");
  parts.calibration.linears[2].input_scale = {70000.0f};
  const std::string name = parts.calibration.linears[2].module + ".input_scale";
  ExportInput input = parts.input();
  CHECK(refusal("compressed-tensors", input) == "no error");
  input.scale_in_model_dtype = true;
  CHECK(refusal("compressed-tensors", input) ==
        name +
            ": 70000 is out of the range of F16; write scales as float32 (--scale-dtype float32)");
}

TEST_CASE("other formats: FP8 weights are refused, or are not in the file and the user is told") {
  const QuantizedParts parts("static_kv");
  CHECK(refusal("tgi", parts.input()) ==
        "TGI's form keeps the weights of the source, and FP8 weights are made; expected "
        "kv_cache_scheme alone, or this format in a run of its own");
  CHECK(refusal("fp8", parts.input()) == "no error");
  CHECK(refusal("scales-json", parts.input()) == "no error");
  const auto notes = kWriters.at("scales-json").make()->notes(parts.input());
  REQUIRE(notes.size() == 1);
  CHECK(contains(notes[0], "weights and inputs are not in it"));
  CHECK(refusal("scales-json", QuantizedParts("dynamic").input()) ==
        "kv_cache_scales.json holds KV scales, the recipe asks for none");
  CHECK(refusal("compressed-tensors", QuantizedParts("dynamic").input()) == "no error");
}

TEST_CASE("compressed-tensors: the user is told what engines do not do with the weights") {
  const auto notes = [](const std::string& name) {
    const QuantizedParts parts(name);
    std::string all;
    for (const std::string& note : kWriters.at("compressed-tensors").make()->notes(parts.input()))
      all += note + "\n";
    return all;
  };
  CHECK(notes("static_kv").empty());
  CHECK(notes("dynamic").empty());
  CHECK(contains(notes("tied_embedding"), "vLLM 0.32 refuses FP8 embeddings"));
  CHECK(contains(notes("mixed"), "16-bit inputs on CUDA"));
  CHECK(contains(notes("block"), "blocks of [128, 128] only"));
  CHECK(contains(notes("block"), "its 80 rows end within a block"));
}
