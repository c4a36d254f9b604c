// Quantized weights of every form, against what the form's own library decodes.
#include <set>

#include "core/hash.h"
#include "core/json.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weight_rows.h"
#include "stored/weights.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

std::vector<float> decoded(const CodedMatrix& matrix) {
  std::vector<float> values(element_count(matrix.shape()));
  matrix.decode(0, matrix.rows(), values.data());
  return values;
}

std::string hash_of(const std::vector<float>& values) {
  Sha256 hash;
  hash.update(std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  return hash.hex();
}

std::vector<float> decoded(const ModelDir& model_dir, const std::string& module,
                           const LinearQuantization& linear) {
  if (linear.coded) return decoded(*linear.coded);
  const TensorView& codes = model_dir.tensor(module + ".weight");
  std::vector<float> values(element_count(codes.shape));
  BlockScaledRows(codes, linear.weight_scale, linear.block_rows, linear.block_columns)
      .decode(0, codes.shape[0], values.data());
  return values;
}

/// Values of a quantized tensor of expected.json: of a Linear, or of all stacked experts.
std::vector<float> values_of(const ModelDir& model_dir, const CheckpointQuantization& quantization,
                             const std::string& name) {
  const auto linear = quantization.linears.find(name);
  if (linear != quantization.linears.end()) return decoded(model_dir, name, linear->second);
  REQUIRE(quantization.stacked.contains(name));
  std::vector<float> all;
  for (const CodedMatrix* expert : quantization.stacked.at(name)) {
    const std::vector<float> values = decoded(*expert);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Rows that are decoded while they are packed are those that are decoded before.
void check_rows_to_pack(const Weights& weights) {
  int64_t compared = 0;
  for (const Role role :
       {Role::kQuery, Role::kKey, Role::kValue, Role::kOutput, Role::kGate, Role::kUp, Role::kDown,
        Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}) {
    if (!weights.has(0, role)) continue;
    INFO(row_of(role).name);
    const WeightRows packed = weights.rows_to_pack(0, role);
    if (packed.decoded.empty()) continue;
    const std::vector<float> before = as_float32(weights.rows(0, role).parts);
    std::vector<float> meanwhile(before.size());
    const int64_t rows = std::ssize(before) / packed.decoded[0].decoder->width();
    decode_rows(packed.decoded, 0, rows, meanwhile.data());
    CHECK(meanwhile == before);
    ++compared;
  }
  CHECK(compared >= 3);
}

void check_kind(const fs::path& folder) {
  INFO(folder.filename().string());
  const Json expected = parse_json(read_text(folder / "expected.json"));
  const ModelDir model_dir(folder);
  const ModelConfig config = read_model_config(model_dir);
  const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, config);
  CHECK(quantization.problems == std::vector<std::string>{});
  CHECK_FALSE(expected["weights"].empty());
  for (const auto& [name, entry] : expected["weights"].items()) {
    INFO(name);
    const std::vector<float> values = values_of(model_dir, quantization, name);
    for (size_t i = 0; i < entry["first"].size(); ++i)
      CHECK(values[i] == entry["first"][i].get<float>());
    // ModelOpt decodes code 8, which is -0, to 0.
    std::vector<float> unsigned_zeros = values;
    for (float& value : unsigned_zeros) value += 0.0f;
    const auto hash = entry["sha256"].get<std::string>();
    CHECK((hash == hash_of(values) || hash == hash_of(unsigned_zeros)));
  }
  // All names are known, all shapes those of config.json, and rows are the decoded ones.
  const Weights weights(model_dir, config, &quantization);
  const auto of_key = quantization.linears.find("model.layers.1.self_attn.k_proj");
  if (of_key != quantization.linears.end())
    CHECK(as_float32(weights.rows(1, Role::kKey).parts) ==
          decoded(model_dir, of_key->first, of_key->second));
  check_rows_to_pack(weights);
}

/// A copy of a fixture. change: of config.json, and of ModelOpt's own file, null where there is
/// none; a file that is null is left out.
template <class Change>
fs::path changed_copy(const std::string& kind, const test::ScratchFolder& scratch,
                      const Change& change) {
  const fs::path from = test::tests_folder() / "fixtures" / "quantized" / kind;
  const fs::path folder = scratch / kind, own_file = folder / "hf_quant_config.json";
  fs::copy(from, folder);
  Json config = parse_json(read_text(from / "config.json")), own;
  if (fs::exists(own_file)) own = parse_json(read_text(own_file));
  change(config, own);
  test::write_file(folder / "config.json", dump_json(config));
  fs::remove(own_file);
  if (!own.is_null()) test::write_file(own_file, dump_json(own));
  return folder;
}

template <class Change>
void check_changed(const std::string& kind, const Change& change) {
  const test::ScratchFolder scratch;
  check_kind(changed_copy(kind, scratch, change));
}

}  // namespace

TEST_CASE("GPTQ's layout has its name under either key, or both") {
  struct Case {
    const char* kind;
    Json keys;
  };
  for (const auto& [kind, keys] :
       {Case{"gptq_v2", {{"format", "gptq_v2"}}},
        Case{"gptq_v2", {{"checkpoint_format", "gptq_v2"}}},
        Case{"gptq_v2", {{"format", "gptq_v2"}, {"checkpoint_format", "gptq_v2"}}},
        Case{"gptq_8", {{"format", "gptq"}}}, Case{"gptq_8", {{"checkpoint_format", "gptq"}}},
        Case{"gptq_8", {{"format", "gptq"}, {"checkpoint_format", "gptq"}}},
        Case{"gptq_8", Json::object()}}) {
    INFO(keys.dump());
    check_changed(kind, [&keys = keys](Json& config, Json&) {
      Json& quantization = config["quantization_config"];
      quantization.erase("checkpoint_format");
      quantization.update(keys);
    });
  }
  const auto with = [](const char* own, const char* other) {
    return test::message_of([&] {
      check_changed("gptq_v2", [&](Json& config, Json&) {
        config["quantization_config"]["format"] = own;
        config["quantization_config"]["checkpoint_format"] = other;
      });
    });
  };
  for (const auto& [own, other] : {std::pair("gptq", "gptq_v2"), std::pair("gptq_v2", "gptq")})
    CHECK(test::contains(with(own, other), std::string("key 'format' is '") + own +
                                               "' and key 'checkpoint_format' is '" + other + "'"));
  CHECK(test::contains(with("marlin", "marlin"),
                       "key 'format' is 'marlin', which is not read; expected gptq or gptq_v2"));
}

TEST_CASE("ModelOpt's list of modules stands in either file, or in both alike") {
  constexpr const char* kList = "quantized_layers";
  const auto into_config = [&](Json& config, Json& own) {
    config["quantization_config"][kList] = own["quantization"][kList];
  };
  check_changed("modelopt_mixed", into_config);
  check_changed("modelopt_mixed", [&](Json& config, Json& own) {
    into_config(config, own);
    own = nullptr;
  });
  check_changed("modelopt_mixed",
                [&](Json& config, Json&) { config.erase("quantization_config"); });
  // Experts by name, not as one module.
  check_changed("modelopt_mixed", [&](Json&, Json& own) {
    Json& list = own["quantization"][kList];
    for (const char* layer : {"0", "1"}) {
      const std::string experts = std::string("model.layers.") + layer + ".mlp.experts";
      const Json one = list[experts];
      list.erase(experts);
      for (int expert = 0; expert < 4; ++expert)
        for (const char* name : {"gate_proj", "up_proj", "down_proj"})
          list[experts + "." + std::to_string(expert) + "." + name] = one;
    }
  });
  const std::string differs = test::message_of([&] {
    check_changed("modelopt_mixed", [&](Json& config, Json& own) {
      into_config(config, own);
      config["quantization_config"][kList]["model.layers.0.mlp.experts"]["quant_algo"] = "NVFP4";
    });
  });
  CHECK(test::contains(
      differs,
      "hf_quant_config.json: key "
      "'quantization.quantized_layers.model.layers.0.mlp.experts.quant_algo' is \"W4A16_NVFP4\""));
  CHECK(test::contains(differs, "says \"NVFP4\"; engines differ in which they read"));
  CHECK(test::contains(test::message_of([&] {
                         check_changed("modelopt_mixed", [](Json&, Json& own) { own = nullptr; });
                       }),
                       "key 'quantized_layers' is missing or empty here and in "
                       "hf_quant_config.json"));
}

TEST_CASE("ModelOpt's NVFP4_AWQ is NVFP4 where no scales of inputs are left") {
  check_changed("modelopt_nvfp4", [](Json&, Json& own) {
    own["quantization"].update({{"quant_algo", "NVFP4_AWQ"}, {"pre_quant_scale", true}});
  });
}

TEST_CASE("ModelOpt's algorithms: words in any case, and sizes of groups that they have") {
  const auto message = [](const std::string& kind, const Json& keys) {
    return test::message_of(
        [&] { check_changed(kind, [&](Json&, Json& own) { own["quantization"].update(keys); }); });
  };
  CHECK(message("modelopt_mxfp4", {{"quant_algo", "MXFP4"}}) == "no error");
  CHECK(message("modelopt_mxfp4", {{"quant_algo", "W4A8_MXFP4_FP8"}}) == "no error");
  CHECK(message("modelopt_w8a16", {{"quant_algo", "W8A8_SQ_PER_CHANNEL"}}) == "no error");
  CHECK(test::contains(message("modelopt_mxfp8", {{"group_size", 16}}),
                       "key 'group_size' is 16, expected 32 for quant_algo MXFP8"));
  CHECK(test::contains(message("modelopt_mxfp4", {{"group_size", 16}}),
                       "key 'group_size' is 16, expected 32 for quant_algo MXFP4"));
  CHECK(test::contains(message("modelopt_w4a8_nvfp4_fp8", {{"group_size", 64}}),
                       "key 'group_size' is 64, expected 16 or 32"));
  CHECK(test::contains(message("modelopt_mxfp8", {{"quant_algo", "NVFP4_SVD"}}),
                       "key 'quant_algo' is 'NVFP4_SVD', whose weights are not read; expected FP8, "
                       "FP8_PER_CHANNEL_PER_TOKEN"));
}

TEST_CASE("AutoRound: blocks and single Linears") {
  const auto message = [](const Json& keys) {
    return test::message_of([&] {
      check_changed("auto_round_gptq",
                    [&](Json& config, Json&) { config["quantization_config"].update(keys); });
    });
  };
  CHECK(message({{"block_name_to_quantize", {"model.layers.0", "model.layers.1"}}}) == "no error");
  CHECK(message({{"block_name_to_quantize", "model.layers.0,model.layers.1"}}) == "no error");
  CHECK(message({{"packing_format", "auto_round:gptq"}}) == "no error");
  CHECK(test::contains(message({{"packing_format", "auto_round:humming"}}),
                       "key 'packing_format' is 'auto_round:humming', which is not read"));
  CHECK(test::contains(message({{"data_type", "nv_fp"}}), "data_type 'nv_fp' of 4 bits"));
  CHECK(test::contains(message({{"rotation_config", {{"hadamard_type", "random"}}}}),
                       "key 'rotation_config' asks for rotations"));
  CHECK(test::contains(message({{"extra_config", {{"model.layers.0.mlp.up_proj", {{"bits", 5}}}}}}),
                       "key 'bits' is 5, expected 2, 3, 4 or 8"));
  // Codes of another width, named by their end and by a pattern, contradict the shapes of their
  // scales.
  const auto modules = [](const std::string& name) {
    const test::ScratchFolder scratch;
    const fs::path folder = changed_copy("auto_round_gptq", scratch, [&](Json& config, Json&) {
      config["quantization_config"]["extra_config"] = {{name, {{"bits", 8}}}};
    });
    const ModelDir model_dir(folder);
    std::string all;
    for (const std::string& problem :
         read_checkpoint_quantization(model_dir, read_model_config(model_dir)).problems)
      all += problem.substr(0, problem.find(" is ")) + ";";
    return all;
  };
  CHECK(modules("mlp.up_proj") ==
        "misshapen: model.layers.0.mlp.up_proj.scales;"
        "misshapen: model.layers.1.mlp.up_proj.scales;");
  CHECK(modules(".*layers\\.0.*up_proj") == "misshapen: model.layers.0.mlp.up_proj.scales;");
}

TEST_CASE("GPTQModel's patterns of modules with bits of their own") {
  const auto message = [](const Json& dynamic) {
    return test::message_of([&] {
      check_changed("gptq_dynamic", [&](Json& config, Json&) {
        config["quantization_config"]["dynamic"] = dynamic;
      });
    });
  };
  CHECK(test::contains(message({{"+:.*up_proj", {{"bits", 5}}}}),
                       "dynamic.+:.*up_proj: key 'bits' is 5, expected 2, 3, 4 or 8"));
  CHECK(test::contains(message({{".*(up_proj", {{"bits", 8}}}}),
                       "dynamic..*(up_proj: pattern 're:.*(up_proj' is no regular expression"));
  CHECK(test::contains(message({{".*up_proj", {{"format", "marlin"}}}}),
                       "key 'format' gives modules another layout"));
  CHECK(test::contains(message({{".*up_proj", 8}}), "found an integer, expected an object"));
  CHECK(test::contains(message(Json::array({"-:.*up_proj"})), "expected an object of patterns"));
}

TEST_CASE("GPTQModel's AWQ: patterns of modules with groups of their own") {
  const auto message = [](const Json& keys) {
    return test::message_of([&] {
      check_changed("gptqmodel_awq",
                    [&](Json& config, Json&) { config["quantization_config"].update(keys); });
    });
  };
  CHECK(message({{"zero_point", true}}) == "no error");
  CHECK(test::contains(message({{"dynamic", {{".*up_proj", {{"bits", 8}}}}}}),
                       "dynamic..*up_proj: key 'bits' is 8, expected 4"));
  CHECK(test::contains(message({{"dynamic", {{".*up_proj", {{"group_size", 0}}}}}}),
                       "dynamic..*up_proj: key 'group_size' is 0, expected -1, or 1 or more"));
  CHECK(test::contains(message({{"dynamic", {{".*up_proj", {{"format", "gemv"}}}}}}),
                       "key 'format' gives modules another layout"));
  CHECK(test::contains(message({{"desc_act", true}}), "key 'desc_act' is true"));
  CHECK(test::contains(message({{"pack_dtype", "int16"}}), "key 'pack_dtype' is 'int16'"));
}

TEST_CASE("weights of every stored form have the values that the form's library decodes") {
  std::set<std::string> kinds;
  for (const auto& entry :
       fs::directory_iterator(test::tests_folder() / "fixtures" / "quantized")) {
    check_kind(entry.path());
    kinds.insert(entry.path().filename().string());
  }
  CHECK(kinds.size() == 60);
}

TEST_CASE("rows of codes are the same in any range") {
  for (const char* kind : {"gptq_3", "packed_int3_zeros", "awq", "awq_gemv", "awq_gemv_fast",
                           "bnb_nf4", "nvfp4", "mxfp6", "modelopt_w4a8_awq", "modelopt_w8a8_sq",
                           "quark_int4", "quark_int8_tensor", "quark_mxfp6_e3m2"}) {
    const ModelDir model_dir(test::tests_folder() / "fixtures" / "quantized" / kind);
    const CheckpointQuantization quantization =
        read_checkpoint_quantization(model_dir, read_model_config(model_dir));
    const CodedMatrix& matrix = *quantization.linears.at("model.layers.0.mlp.down_proj").coded;
    const std::vector<float> all = decoded(matrix);
    const auto width = static_cast<size_t>(matrix.width());
    std::vector<float> some(3 * width);
    matrix.decode(17, 3, some.data());
    CHECK(std::equal(some.begin(), some.end(), all.begin() + 17 * matrix.width()));
  }
}

}  // namespace kvcal
