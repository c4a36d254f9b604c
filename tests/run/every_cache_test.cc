#include "run/eval_variants.h"

#include "run/evaluation.h"
#include "run/support/text_checkpoint.h"
#include "stored/kv_scales.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;
using Strings = std::vector<std::string>;

namespace {

Strings names_of(const std::vector<VariantSpec>& specs) {
  Strings names;
  for (const VariantSpec& spec : specs) names.push_back(spec.name);
  return names;
}

ModelConfig config_of(int64_t head_dim) {
  const Json json = {
      {"model_type", "llama"},    {"hidden_size", 2 * head_dim}, {"num_attention_heads", 2},
      {"num_key_value_heads", 2}, {"num_hidden_layers", 2},      {"intermediate_size", 8},
      {"vocab_size", 16},         {"head_dim", head_dim},        {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-5}};
  return parse_model_config(json);
}

CalibratedScales scales_of(const std::vector<Scale>& heads) {
  const std::vector<LayerKvScales> scales(2, {.k = heads, .v = heads});
  return {.layers = with_joined_heads(scales), .heads = scales, .source = "checkpoint"};
}

}  // namespace

TEST_CASE("every cache: those without scales, and with calibrated scales all of them") {
  CHECK(names_of(every_cache(config_of(64), CalibratedScales{})) ==
        Strings{"fp8, 1.0", "fp8_e5m2", "fp8_per_token_head", "mxfp8", "int8_per_token_head",
                "nvfp4, 1.0", "int4_per_token_head"});
  CHECK(names_of(every_cache(config_of(64), scales_of({{0.1f}, {0.2f}}))) ==
        Strings{"fp8, 1.0", "fp8, by layer", "fp8, by head", "fp8_e5m2", "fp8_per_token_head",
                "mxfp8", "int8, by layer", "int8_per_token_head", "nvfp4, 1.0", "nvfp4, by layer",
                "int4_per_token_head"});
}

TEST_CASE("every cache: blocks that do not divide heads are left out") {
  CHECK(names_of(every_cache(config_of(8), CalibratedScales{})) ==
        Strings{"fp8, 1.0", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head",
                "int4_per_token_head"});
}

TEST_CASE("every cache: scales of a layer are the largest of its heads, for the format's codes") {
  const auto fp8 = scales_as(KvDType::kFp8E4m3, scales_of({{0.1f}, {0.2f}}).heads);
  CHECK(fp8[0].k.size() == 2);
  const auto int8 = scales_as(CacheFormat::kInt8, scales_of({{0.1f}, {0.2f}}).heads);
  REQUIRE(int8[1].v.size() == 1);
  CHECK(int8[1].v[0].value == Approx(0.2 * 448 / 127));
  // ModelOpt's rule for NVFP4 is that of FP8: amax / 448.
  CHECK(scales_as(CacheFormat::kNvfp4, scales_of({{0.1f}, {0.2f}}).heads)[0].k[0].value == 0.2f);
}

TEST_CASE("every cache: one evaluation has KL and bytes a token of each") {
  const TextCheckpoint files;
  SilentDiagnostics silent;
  EvalOptions options{.model = files.path(),
                      .dataset = files.text(),
                      .device = test::reference_device(),
                      .sequences = {.max_seq_length = 16},
                      .every_cache = true};
  const LikelihoodOptions asked{.has_reference = true};
  const report::EvalReport result = evaluate_likelihood(options, asked, silent).report;
  REQUIRE(result.variants.size() == 5);
  CHECK_FALSE(result.is_single);
  for (const report::EvalVariant& variant : result.variants) {
    CAPTURE(variant.cache.name);
    CHECK(*variant.all.kl_mean > 0.0);
  }
  const Json variants = likelihood_json(options, asked, result).at("variants");
  CHECK(variants[0].at("scales") == "unit");
  CHECK(variants[2].at("scales") == "dynamic");
  CHECK(variants[2].at("kv_cache_dtype") == "fp8_per_token_head");
  // Heads of 8: the scale of a head and token takes half as many bytes as its values.
  const auto bytes = variants[0].at("bytes_per_token").get<int64_t>();
  CHECK(variants[2].at("bytes_per_token") == bytes + bytes / 2);
  CHECK(variants[4].at("bytes_per_token") == bytes);

  options.variants = {"a=float16"};
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, silent); }),
                 "--variant and --every-cache both"));
  options.variants = {};
  options.cache.unit_scales = true;
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, silent); }),
                 "--unit-scales is for a single one"));
  options.cache = {.fp8_attention = true};
  CHECK(contains(message_of([&] { evaluate_likelihood(options, {}, silent); }),
                 "--fp8-attention is for a single one"));
}
