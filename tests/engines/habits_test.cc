// What verify says of other people's variants of a checkpoint (names, dtypes, shapes, missing and
// doubled tensors, files and configurations that contradict), against what the engines' own code
// did: reference/engines_habits.py makes the variants, engines_ENGINE.py --habits runs an
// engine on them.
#include <map>

#include "engines/support/recorded_variant.h"
#include "support/catch.h"

using namespace kvcal;
using test::difference;

namespace {

/// Variants of which verify says something else than an engine, and why.
using Known = std::map<std::string, std::string>;

bool has_fp8_cache(const Json& seen) {
  return seen.at("cache_dtype").get_ref<const std::string&>().starts_with("fp8");
}

/// Whether an attention layer runs without a scale of the checkpoint on this side.
bool is_default(const Json& value) {
  return value.is_null() || value == 1.0 || value == "undefined";
}

/// Whether some sides of layers have a scale and others none, and ignore names no layer.
bool has_gap(const Json& variant, const Json& seen) {
  const Json config = variant.value("quantization_config", Json::object());
  if (config.is_object() &&
      dump_json(config.value("ignore", Json())).find("layers.") != std::string::npos)
    return false;
  if (!seen.at("loads").get<bool>() || !has_fp8_cache(seen)) return false;
  size_t defaults = 0, all = 0;
  for (const Json& layer : seen.at("layers"))
    for (const char* side : {"k", "v"}) {
      ++all;
      defaults += is_default(layer.at(side));
    }
  return defaults > 0 && defaults < all;
}

/// Whether the variant has scales of its own, not only of its Linears, and none of them is used.
bool loses_all(const Json& variant, const Json& seen, const VerifyReport& report) {
  if (!has_fp8_cache(seen)) return false;
  Json tensors = variant.at("tensors");
  if (variant.contains("files"))
    for (const Json& file : variant.at("files")) tensors.update(file);
  bool has_scales = false;
  for (const auto& [name, tensor] : tensors.items())
    has_scales = has_scales || !name.ends_with("_proj.input_scale");
  for (const Json& layer : seen.at("layers"))
    for (const char* side : {"k", "v"}) has_scales = has_scales && is_default(layer.at(side));
  // A scale of the file may be 1.0.
  for (const EngineLayer& layer : report.layers)
    has_scales = has_scales && layer.k.source.empty() && layer.v.source.empty();
  return has_scales;
}

/// Whether verify has to find an error.
bool is_bad(const Json& variant, const Json& seen, const VerifyReport& report) {
  return !seen.at("loads").get<bool>() || has_gap(variant, seen) ||
         loses_all(variant, seen, report);
}

struct Tally {
  size_t cases = 0;
  std::map<std::string, std::string> differ;
  std::vector<std::string> hidden;  ///< bad, and verify finds no error
};

/// variants: {name: what describes it}; answers: {name: what the engine did}.
Tally compare(const std::string& engine, const Json& config, const Json& variants,
              const Json& answers) {
  Tally tally;
  for (const auto& [name, seen] : answers.items()) {
    const Json& variant = variants.at(name);
    const VerifyReport report = test::report_of(engine, config, variant);
    ++tally.cases;
    if (const std::string how = difference(report, seen); !how.empty()) tally.differ[name] = how;
    if (is_bad(variant, seen, report) && !loses_scales(report)) tally.hidden.push_back(name);
  }
  return tally;
}

void check_tally(const Tally& tally, const Known& known) {
  std::string lines;
  for (const auto& [name, how] : tally.differ)
    if (!known.contains(name)) lines += name + ": " + how + "\n";
  for (const std::string& name : tally.hidden) lines += name + ": no error\n";
  CHECK(lines == "");
  for (const auto& [name, why] : known) {
    INFO(name << ", which differs no more: " << why);
    CHECK(tally.differ.contains(name));
  }
  CHECK(known.size() * 50 <= tally.cases);
}

/// not_judged: variants that the engine refuses only where it was run.
void check_habits(const std::string& engine, const std::string& file, const Known& known = {},
                  const Known& not_judged = {}) {
  static const Json habits = test::fixture("habits");
  Json answers = test::fixture("habits_" + file);
  for (const auto& [name, why] : not_judged) CHECK(answers.at("variants").erase(name) == 1);
  INFO(engine << " " << answers.at("version"));
  const Tally tally =
      compare(engine, habits.at("config"), habits.at("variants"), answers.at("variants"));
  CHECK(tally.cases > 180);
  check_tally(tally, known);
}

/// The same of engines_variants.py, which the record of vLLM describes.
void check_variants(const std::string& engine, const std::string& file, const Known& known = {}) {
  const Json& described = test::record_of("vllm");
  const Json answers = test::fixture("variants_" + file);
  INFO(engine << " " << answers.at("version"));
  const Tally tally =
      compare(engine, described.at("config"), described.at("variants"), answers.at("variants"));
  CHECK(tally.cases > 40);
  check_tally(tally, known);
}

/// The variants of engines_keys.py: JSON patches of a few bases.
Json key_variants(const Json& keys) {
  Json variants = keys.at("bases");
  for (const auto& [name, row] : keys.at("variants").items())
    variants[name] = keys.at("bases").at(row.at("like").get<std::string>()).patch(row.at("patch"));
  return variants;
}

/// The same of engines_keys.py, one key of a configuration after another.
void check_keys(const std::string& engine, const std::string& file, const Known& known = {}) {
  static const Json keys = test::fixture("keys");
  static const Json variants = key_variants(keys);
  const Json record = test::fixture("keys_" + file);
  Json answers = record.at("variants");
  for (auto& [name, answer] : answers.items())
    if (answer == "as base")
      answer = answers.at(keys.at("variants").at(name).at("like").get<std::string>());
  INFO(engine << " " << record.at("version"));
  const Tally tally = compare(engine, keys.at("config"), variants, answers);
  CHECK(tally.cases > 500);
  check_tally(tally, known);
}

/// Checkpoints that kvcal itself refuses, with the exit status of an error.
constexpr const char* kTwice = "it takes the last of two keys of one name";
constexpr const char* kPath = "it takes paths for names of files in an index";
const Known kForVllm{{"both_twice_in_json", kTwice},
                     {"dtype_number_fp8", "it takes a number for no dtype"}};
const Known kForTransformers24{
    {"both_twice_in_json", kTwice}, {"shards_dotted_path", kPath}, {"shards_in_folder", kPath}};
/// transformers alone repairs prefixes, which 5.24 has no use for.
const Known kForTransformers = [] {
  Known known = kForTransformers24;
  known["prefix_no_model"] = "it adds the prefix of the model to names that lack it";
  known["prefix_twice_model"] = "it takes a prefix away that is there twice";
  return known;
}();

}  // namespace

TEST_CASE("verify says of every habit what vLLM did") {
  check_habits("vllm@0.32", "vllm", kForVllm);
}

TEST_CASE("verify says of every habit what vLLM 0.33 did") {
  check_habits("vllm@0.33", "vllm_0.33", kForVllm,
               {{"modelopt_kv_nvfp4", "a CPU, on which it was run, has no NVFP4 caches"}});
}

TEST_CASE("verify says of every habit what SGLang did") {
  // A checkpoint whose experts have 4 bits would load, without the scales.
  const std::string why =
      "its loader wants Linears of whole blocks of 128 rows, which are others here";
  check_habits("sglang", "sglang",
               {{"both_twice_in_json", kTwice},
                {"modelopt_mixed", why},
                {"modelopt_mixed_map", why},
                {"shards_dotted_path", "it reads no file that an index names by a path"},
                {"shards_in_folder", "it reads no file that an index names by a path"}});
}

TEST_CASE("verify says of every habit what Aphrodite did") {
  check_habits("aphrodite", "aphrodite", kForVllm);
}

TEST_CASE("verify says of every habit what TGI did") {
  check_habits("tgi", "tgi");
}

TEST_CASE("verify says of every habit what transformers 5.17 did") {
  check_habits("transformers@5.17", "transformers", kForTransformers);
}

TEST_CASE("verify says of every habit what transformers 5.23 did") {
  check_habits("transformers@5.23", "transformers_5.23", kForTransformers);
}

TEST_CASE("verify says of every habit what transformers 5.24 did") {
  check_habits("transformers@5.24", "transformers_5.24", kForTransformers24);
}

TEST_CASE("verify says of every key of a configuration what vLLM did") {
  check_keys("vllm@0.32", "vllm");
  check_keys("vllm@0.33", "vllm_0.33");
  check_keys("aphrodite", "aphrodite");
}

TEST_CASE("verify says of every key of a configuration what SGLang did") {
  const std::string why =
      "its loader wants Linears of whole blocks of 128 rows, which are others here";
  check_keys("sglang", "sglang",
             {{"modelopt_config_mixed", why},
              {"modelopt_config_mixed_none", why},
              {"modelopt_mixed_layers", why}});
}

TEST_CASE("verify says of every key of a configuration what transformers did") {
  check_keys("transformers@5.17", "transformers");
  check_keys("transformers@5.23", "transformers_5.23");
  check_keys("transformers@5.24", "transformers_5.24");
}

TEST_CASE("verify says of every variant what the other engines did") {
  check_variants("vllm@0.33", "vllm_0.33");
  check_variants("sglang", "sglang");
  check_variants("aphrodite", "aphrodite");
  check_variants("tgi", "tgi");
  check_variants("transformers@5.23", "transformers_5.23");
  check_variants("transformers@5.24", "transformers_5.24");
}
