// Weights of other forms in compressed-tensors': every value is the same.
#include "convert/output_model.h"

#include <algorithm>
#include <cmath>

#include "convert/support/convert_case.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

fs::path quantized(const std::string& kind) {
  return tests_folder() / "fixtures" / "quantized" / kind;
}

/// Converts a fixture without KV scales: its weights alone.
void recode(const std::string& kind, const fs::path& target) {
  convert({.checkpoint = quantized(kind), .formats = {"compressed-tensors"}, .target = target});
}

/// Quantized weights of a folder, which must be free of contradictions, and all rows of the model.
struct Opened {
  explicit Opened(const fs::path& folder)
      : model(folder),
        config(read_model_config(model)),
        quantization(read_checkpoint_quantization(model, config)) {
    CHECK(quantization.problems == std::vector<std::string>{});
  }
  std::vector<float> rows(int64_t layer, Role role, int64_t index) const {
    return as_float32(Weights(model, config, &quantization).rows(layer, role, index).parts);
  }

  ModelDir model;
  ModelConfig config;
  CheckpointQuantization quantization;
};

std::vector<float> decoded(const CodedMatrix& matrix) {
  std::vector<float> values(element_count(matrix.shape()));
  matrix.decode(0, matrix.rows(), values.data());
  return values;
}

/// Largest difference, in units of the last place of the expected value.
double largest_difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  REQUIRE(actual.size() == expected.size());
  double largest = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double step = std::nextafter(std::fabs(expected[i]), INFINITY) - std::fabs(expected[i]);
    largest = std::max(largest, std::fabs(actual[i] - expected[i]) / step);
  }
  return largest;
}

const Json& group_of(const Opened& opened) {
  const Json& groups = opened.model.config().at("quantization_config").at("config_groups");
  REQUIRE(groups.size() == 1);
  return groups.front();
}

}  // namespace

TEST_CASE("recoded weights: integers of every form have the same values") {
  // The library multiplies INT8 by SCB and by 1/127, which rounds twice; a scale rounds once.
  const std::vector<std::pair<std::string, double>> kinds{{"gptq_2", 0},
                                                          {"gptq_3", 0},
                                                          {"gptq_4", 0},
                                                          {"gptq_8", 0},
                                                          {"gptq_v2", 0},
                                                          {"gptq_old", 0},
                                                          {"awq", 0},
                                                          {"auto_round_gptq", 0},
                                                          {"auto_round_gptq_v2", 0},
                                                          {"auto_round_awq", 0},
                                                          {"quark_int4", 0},
                                                          {"quark_uint4", 0},
                                                          {"quark_int8", 0},
                                                          {"quark_int8_tensor", 0},
                                                          {"modelopt_w8a16", 0},
                                                          {"w8a8_int8", 0},
                                                          {"bnb_int8", 2}};
  for (const auto& [kind, units] : kinds) {
    INFO(kind);
    const ScratchFolder scratch;
    recode(kind, scratch / "out");
    const Opened source(quantized(kind)), written(scratch / "out");
    REQUIRE_FALSE(source.quantization.linears.empty());
    CHECK(written.quantization.linears.size() == source.quantization.linears.size());
    for (const auto& [module, linear] : source.quantization.linears) {
      INFO(module);
      const auto other = written.quantization.linears.find(module);
      REQUIRE(other != written.quantization.linears.end());
      CHECK(largest_difference(decoded(*other->second.coded), decoded(*linear.coded)) <= units);
    }
    // Nothing of the old form is left, and what was not quantized is there, byte for byte.
    for (const std::string& name : written.model.tensor_names())
      CHECK_FALSE((name.ends_with(".qweight") || name.ends_with(".scales") ||
                   name.ends_with(".qzeros") || name.ends_with(".SCB")));
    for (const std::string& name : source.model.tensor_names())
      if (name.find("norm") != std::string::npos || name.find("embed") != std::string::npos)
        CHECK(
            std::ranges::equal(written.model.tensor(name).bytes, source.model.tensor(name).bytes));
    CHECK(group_of(written).at("format") == "pack-quantized");
    CHECK(group_of(written).at("targets") == Json::array({"Linear"}));
  }
}

TEST_CASE("recoded weights: zero points and the order of columns are kept where there are any") {
  const auto args_of = [](const std::string& kind) {
    const ScratchFolder scratch;
    recode(kind, scratch / "out");
    const Opened written(scratch / "out");
    const std::string module = "model.layers.0.mlp.down_proj";
    CHECK((written.model.find(module + ".weight_zero_point") != nullptr) ==
          !group_of(written).at("weights").at("symmetric").get<bool>());
    CHECK((written.model.find(module + ".weight_g_idx") != nullptr) ==
          !group_of(written).at("weights").at("actorder").is_null());
    return group_of(written).at("weights");
  };
  CHECK(args_of("awq").at("symmetric") == false);
  CHECK(args_of("gptq_8").at("num_bits") == 8);
  CHECK(args_of("gptq_v2").at("actorder").is_null());
  const Json ordered = args_of("gptq_4");
  CHECK(ordered.at("num_bits") == 4);
  CHECK(ordered.at("actorder") == "group");
}

TEST_CASE("recoded weights: experts of gpt-oss get tensors of their own, with their biases") {
  const ScratchFolder scratch;
  recode("gpt_oss", scratch / "out");
  const Opened source(quantized("gpt_oss")), written(scratch / "out");
  CHECK(written.quantization.stacked.empty());
  CHECK(group_of(written).at("format") == "mxfp4-pack-quantized");
  for (int64_t layer = 0; layer < source.config.num_hidden_layers; ++layer)
    for (int64_t expert = 0; expert < source.config.moe.num_experts; ++expert)
      for (const Role role : {Role::kExpertGate, Role::kExpertUp, Role::kExpertDown,
                              Role::kExpertGateBias, Role::kExpertUpBias, Role::kExpertDownBias}) {
        INFO("layer " << layer << ", expert " << expert);
        CHECK(written.rows(layer, role, expert) == source.rows(layer, role, expert));
      }
  // Attention stays as it is and is listed.
  const Json& ignore = written.model.config().at("quantization_config").at("ignore");
  CHECK(std::ranges::find(ignore, Json("model.layers.1.self_attn.o_proj")) != ignore.end());
}

TEST_CASE("recoded weights: codes that compressed-tensors lacks are refused, with the reason") {
  const auto refusal = [](const std::string& kind, const std::string& format) {
    return refusal_of({.checkpoint = quantized(kind), .formats = {format}});
  };
  CHECK(contains(refusal("bnb_nf4", "compressed-tensors"),
                 "compressed-tensors has no such codes: their 16 values (quant_map) are not evenly "
                 "spaced"));
  CHECK(contains(refusal("modelopt_nvfp4", "compressed-tensors"),
                 "divides by the global scale of FP4 weights and this form multiplies by it"));
  CHECK(contains(refusal("awq", "fp8"),
                 "has weights of awq (model.layers.0.self_attn.q_proj.qweight) that are kept where "
                 "the output has the same form, or scales-json; compressed-tensors may hold the "
                 "same codes"));
}

TEST_CASE("recoded weights: Quark's MXFP4 keeps its codes, under names that it has already") {
  for (const char* kind : {"quark_mxfp4", "quark_mxfp4_moe"}) {
    INFO(kind);
    const ScratchFolder scratch;
    recode(kind, scratch / "out");
    const Opened source(quantized(kind)), written(scratch / "out");
    REQUIRE_FALSE(source.quantization.linears.empty());
    CHECK(written.quantization.linears.size() == source.quantization.linears.size());
    for (const auto& [module, linear] : source.quantization.linears) {
      INFO(module);
      const auto other = written.quantization.linears.find(module);
      REQUIRE(other != written.quantization.linears.end());
      CHECK(largest_difference(decoded(*other->second.coded), decoded(*linear.coded)) == 0);
    }
    CHECK(group_of(written).at("format") == "mxfp4-pack-quantized");
  }
}

TEST_CASE("recoded weights: quantized tensors outside the model would be lost, and are refused") {
  const ScratchFolder scratch;
  copy_folder(quantized("gptq_4"), scratch / "model");
  // A tensor of a module that the model does not run.
  const ModelDir model(quantized("gptq_4"));
  const SafetensorsFile& file = model.shards()[0];
  std::vector<TensorSource> sources;
  for (const TensorView& tensor : file.tensors()) sources.push_back(source_of(file, tensor));
  TensorSource extra = source_of(file, *file.find("model.layers.0.mlp.down_proj.qweight"));
  extra.name = "visual.blocks.0.proj.qweight";
  sources.push_back(extra);
  write_safetensors(scratch / "model" / "model.safetensors", std::move(sources), {});
  CHECK(contains(refusal_of({.checkpoint = scratch / "model", .formats = {"compressed-tensors"}}),
                 "visual.blocks.0.proj.qweight is quantized and no part of the text model"));
}
