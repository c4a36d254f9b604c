// Keys of a quantization config that no form has, and tensors that only an index has.
#include <algorithm>

#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::contains;
using test::ScratchFolder;

namespace {

struct Outcome {
  std::string error;
  std::vector<std::string> warnings;
};

/// Reads a fixture whose quantization config has another key at pointer.
Outcome with_key(const std::string& format, const std::string& pointer, const Json& value) {
  const fs::path from = test::tests_folder() / "fixtures" / "quantized" / format;
  const ScratchFolder scratch;
  Json config = parse_json(read_text(from / "config.json"));
  config["quantization_config"][Json::json_pointer(pointer)] = value;
  test::write_file(scratch / "config.json", dump_json(config));
  fs::copy_file(from / "model.safetensors", scratch / "model.safetensors");
  Outcome outcome;
  outcome.error = test::message_of([&] {
    const ModelDir model_dir(scratch.path());
    const ModelConfig read = read_model_config(model_dir);
    outcome.warnings = read_checkpoint_quantization(model_dir, read).warnings;
  });
  return outcome;
}

bool warns_of(const Outcome& outcome, const std::string& key) {
  return std::ranges::any_of(outcome.warnings, [&](const std::string& warning) {
    return contains(warning, "quantization_config: unknown key '" + key + "' is passed over");
  });
}

const std::vector<std::string> kForms{"autofp8", "awq", "bnb_nf4", "gptq_4", "packed_int4"};

}  // namespace

TEST_CASE("unknown keys: null and empty values say nothing, in any form and place") {
  for (const std::string& format : kForms)
    for (const Json& value : {Json(), Json::array(), Json::object(), Json("")}) {
      INFO(format << " " << value.dump());
      const Outcome outcome = with_key(format, "/moe_sparsity_config", value);
      CHECK(outcome.error == "no error");
      CHECK_FALSE(warns_of(outcome, "moe_sparsity_config"));
    }
  CHECK(with_key("packed_int4", "/config_groups/group_0/weights/new_field", Json()).error ==
        "no error");
  CHECK(with_key("packed_int4", "/config_groups/group_0/new_field", Json()).error == "no error");
}

TEST_CASE("unknown keys: one that changes nothing is one warning, in any form") {
  for (const std::string& format : kForms) {
    INFO(format);
    const Outcome outcome = with_key(format, "/written_on", "a Sunday");
    CHECK(outcome.error == "no error");
    CHECK(warns_of(outcome, "written_on"));
  }
}

TEST_CASE("unknown keys: one that may change a value is an error with its place") {
  for (const std::string& format : kForms) {
    INFO(format);
    const Outcome outcome = with_key(format, "/exclude_modules", Json::array({"lm_head"}));
    CHECK(contains(outcome.error, "quantization_config: unknown key 'exclude_modules'"));
  }
  CHECK(contains(with_key("packed_int4", "/ignored", Json::array({"lm_head"})).error,
                 "unknown key 'ignored' (did you mean 'ignore'?)"));
  CHECK(contains(with_key("packed_int4", "/config_groups/group_0/weights/new_field", 1).error,
                 "config_groups.group_0: weights: unknown key 'new_field'"));
  const Json scheme = {{"num_bits", 8},        {"type", "float"},  {"symmetric", true},
                       {"strategy", "tensor"}, {"dynamic", false}, {"new_field", 1}};
  CHECK(contains(with_key("packed_int4", "/kv_cache_scheme", scheme).error,
                 "kv_cache_scheme: unknown key 'new_field'"));
}

TEST_CASE("absent tensors of an index: refused where they run, else a warning") {
  const fs::path from = test::tests_folder() / "fixtures" / "models" / "mistral_window";
  const auto opened = [&](const std::string& name) {
    const ScratchFolder scratch;
    fs::copy(from, scratch / "model");
    Json index = parse_json(read_text(scratch / "model" / kIndexFileName));
    index["weight_map"][name] = "model-00002-of-00002.safetensors";
    test::write_file(scratch / "model" / kIndexFileName, dump_json(index));
    Outcome outcome;
    outcome.error = test::message_of([&] {
      const ModelDir model_dir(scratch / "model");
      const ModelConfig config = read_model_config(model_dir);
      outcome.warnings = read_checkpoint_quantization(model_dir, config).warnings;
    });
    return outcome;
  };
  const Outcome beside = opened("mtp.fc.weight");
  CHECK(beside.error == "no error");
  CHECK(beside.warnings ==
        std::vector<std::string>{"model.safetensors.index.json names mtp.fc.weight, which is in no "
                                 "file and not run"});
  CHECK(contains(opened("model.layers.0.mlp.new.weight").error,
                 "weight_map puts tensor 'model.layers.0.mlp.new.weight' into "
                 "model-00002-of-00002.safetensors, which does not hold it"));
}
