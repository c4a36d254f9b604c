#include <set>

#include "convert/support/round_trips.h"
#include "export/manifest.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

using Names = std::set<std::string>;

/// Of the fixtures, those that a form has no place for; everything else comes back.
const Names kHybrids{"bailing_hybrid",
                     "bamba",
                     "glm5_next",
                     "granitemoehybrid",
                     "granitemoehybrid_moe",
                     "jamba",
                     "jamba_biased",
                     "kimi_k3",
                     "kimi_k3_plain",
                     "kimi_linear",
                     "lara_mini",
                     "lfm2",
                     "lfm2_moe",
                     "lfm2_moe_plain",
                     "lfm2_vl",
                     "lfm3",
                     "lfm3_vl",
                     "minimax",
                     "minicpm_ocr",
                     "minicpmv4_6",
                     "minicpmv4_7",
                     "mllama",
                     "nemotron_h",
                     "nemotron_h_latent",
                     "nemotron_h_omni",
                     "olmo_hybrid",
                     "olmo_hybrid_saved",
                     "qwen3_5",
                     "qwen3_5_biased",
                     "qwen3_5_moe",
                     "qwen3_5_text",
                     "qwen3_next",
                     "qwen3_next_biased",
                     "qwen4_exp"};
const Names kNoSelfAttention{"bailing_hybrid",
                             "bloom",
                             "dbrx",
                             "dbrx_norm",
                             "exaone",
                             "falcon_11b",
                             "falcon_40b",
                             "falcon_7b",
                             "falcon_sequential",
                             "gpt2",
                             "gpt2_scaled",
                             "sarvam_moe",
                             "gpt_neox",
                             "inkling",
                             "internlm2",
                             "gpt_neox_sequential",
                             "codegen",
                             "gpt_bigcode",
                             "gpt_bigcode_heads",
                             "gpt_neo",
                             "gptj",
                             "mpt"};
/// Engines load no FP8 weights of Conv1D; a recipe for all Linears is refused for projections of
/// the embedding, and for rows of gate and up that alternate.
const Names kNoFp8{"gpt2", "gpt2_scaled", "inkling", "opt_projected"};
/// Two shards or more.
const Names kSharded{"deepseek_v3", "mistral_window", "mixtral", "qwen2"};

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(model_fixture("")))
    if (entry.path().filename() != "deepseek_v3_fp8")  // has no 16-bit weights
      names.push_back(entry.path().filename());
  return names;
}

/// The outcome is expected, or the refusal of a form that has no place for the model.
void check_outcome(RoundTrips& trips, const std::string& model, const std::string& stored,
                   const std::string& expected) {
  const std::string outcome = trips.outcome("compressed-tensors", stored);
  INFO(model << " to " << stored << ": " << outcome);
  if (stored == "scales-json" && kHybrids.contains(model))
    CHECK(contains(outcome, "kv_cache_scales.json must have one for each of"));
  else if (stored == "modelopt" && kNoSelfAttention.contains(model))
    CHECK(contains(outcome, "vLLM and SGLang have no place for"));
  else
    CHECK(outcome == expected);
}

}  // namespace

TEST_CASE("round trips: every family, 16-bit weights", "[slow]") {
  for (const std::string& model : models()) {
    RoundTrips trips({"", model_fixture(model)}, scales_apart);
    for (const auto& [stored, expected] : {std::pair{"modelopt", "same"},
                                           {"quark", "same"},
                                           {"tgi", "merged"},
                                           {"scales-json", "merged"}})
      check_outcome(trips, model, stored, expected);
    INFO(model << " with a scale a head");
    CHECK(trips.outcome("attn_head", "attn_head") == "same");
  }
}

TEST_CASE("round trips: every family, FP8 weights", "[slow]") {
  int num_with_experts = 0;
  for (const std::string& model : models()) {
    if (kNoFp8.contains(model)) continue;
    RoundTrips dynamic({"scheme: FP8_DYNAMIC", model_fixture(model)}, scales_apart);
    RoundTrips fixed({"scheme: FP8", model_fixture(model)}, scales_apart);
    check_outcome(dynamic, model, "quark", "same");
    const bool has_experts =
        contains(dynamic.outcome("compressed-tensors", "modelopt"), "run experts with one scale");
    if (has_experts) CHECK(contains(ModelDir(model_fixture(model)).config().dump(), "experts"));
    num_with_experts += has_experts ? 1 : 0;
    for (RoundTrips* trips : {&dynamic, &fixed})
      if (trips == &fixed || !has_experts) check_outcome(*trips, model, "modelopt", "same");
    INFO(model);
    CHECK(fixed.outcome("compressed-tensors", "fp8") == "same");
  }
  CHECK(num_with_experts > 10);
}

TEST_CASE("round trips: FP8 shards keep every tensor, though scales may move") {
  // Where a run wrote them, scales of K and V lie in the shards. A conversion that leaves weights
  // as they are puts scales into a shard of their own, as it does beside 16-bit shards.
  for (const std::string& model : kSharded) {
    RoundTrips trips({"scheme: FP8", model_fixture(model)}, scales_apart);
    INFO(model);
    CHECK(trips.outcome("compressed-tensors", "compressed-tensors") == "moved");
    CHECK(trips.outcome("compressed-tensors", "tgi") == "merged, moved");
    CHECK(trips.outcome("compressed-tensors", "fp8") == "same");
    CHECK(trips.outcome("tgi", "tgi") == "same");
  }
}

TEST_CASE("round trips: layers without scales stay so") {
  const std::string ignored = "model.layers.1.self_attn";
  for (const std::string recipe : {"", "scheme: FP8"}) {
    RoundTrips trips({recipe, model_fixture("llama_tied_bf16")}, scales_apart, ignored);
    for (const char* from : kForms)
      for (const char* to : kForms) {
        const std::string outcome = trips.outcome(from, to);
        INFO(recipe << ": " << from << " -> " << to << ": " << outcome);
        const auto is_one = [&](const std::string& stored) {
          return from == stored || to == stored;
        };
        const bool lacks_fp8 = recipe.empty() && is_one("fp8");
        if (is_one("scales-json"))
          CHECK((contains(outcome, ignored + " is ignored and has no scale") || lacks_fp8));
        else if (lacks_fp8)
          CHECK(contains(outcome, "is for FP8 weights"));
        else
          CHECK((outcome == "same" || outcome == "merged"));
      }
  }
}
