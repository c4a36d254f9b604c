#include "run/eval_variants.h"

#include <algorithm>

#include "core/file.h"
#include "core/json.h"
#include "forward/kv_cache.h"
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

Json config_json(int64_t head_dim) {
  return {
      {"model_type", "llama"},    {"hidden_size", 2 * head_dim}, {"num_attention_heads", 2},
      {"num_key_value_heads", 2}, {"num_hidden_layers", 2},      {"intermediate_size", 8},
      {"vocab_size", 16},         {"head_dim", head_dim},        {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-5}};
}

ModelConfig config_of(int64_t head_dim) {
  return parse_model_config(config_json(head_dim));
}

/// names, and caches that are always offered to heads of 64.
Strings with_others(Strings names) {
  const Strings others{"fp4_mx_block16",     "int4_per_token_head", "turboquant_k8v4",
                       "turboquant_4bit_nc", "turboquant_k3v4_nc",  "turboquant_3bit_nc",
                       "octave_k3v4",        "octave_k3v3",         "octave_k3v3_compact",
                       "ultraquant_4bit"};
  names.insert(names.end(), others.begin(), others.end());
  return names;
}

CalibratedScales scales_of(const std::vector<Scale>& heads) {
  const std::vector<LayerKvScales> scales(2, {.k = heads, .v = heads});
  return {.layers = with_joined_heads(scales), .heads = scales, .source = "checkpoint"};
}

}  // namespace

TEST_CASE("every cache: those without scales, and with calibrated scales all of them") {
  CHECK(names_of(every_cache(config_of(64), CalibratedScales{})) ==
        with_others({"fp8, 1.0", "fp8_e5m2", "fp8_per_token_head", "mxfp8", "int8_per_token_head",
                     "nvfp4, 1.0", "nvfp4_4over6, 1.0"}));
  CHECK(names_of(every_cache(config_of(64), scales_of({{0.1f}, {0.2f}}))) ==
        with_others({"fp8, 1.0", "fp8, by layer", "fp8, by head", "fp8_e5m2", "fp8_per_token_head",
                     "mxfp8", "int8, by layer", "int8_per_token_head", "nvfp4, 1.0",
                     "nvfp4, by layer", "nvfp4_4over6, 1.0", "nvfp4_4over6, by layer"}));
}

TEST_CASE("every cache: blocks that do not divide heads are left out") {
  CHECK(names_of(every_cache(config_of(8), CalibratedScales{})) ==
        Strings{"fp8, 1.0", "fp8_e5m2", "fp8_per_token_head", "int8_per_token_head",
                "int4_per_token_head", "turboquant_k8v4"});
}

TEST_CASE("every cache: a latent of the published size has its own") {
  Json json = parse_json(read_text(test::model_fixture("deepseek_v3") / "config.json"));
  CHECK(names_of(every_cache(parse_model_config(json), CalibratedScales{})) ==
        Strings{"fp8, 1.0", "fp8_e5m2"});
  json.update({{"kv_lora_rank", 512}, {"qk_rope_head_dim", 64}});
  CHECK(names_of(every_cache(parse_model_config(json), CalibratedScales{})) ==
        Strings{"fp8, 1.0", "fp8_e5m2", "fp8_ds_mla", "nvfp4_ds_mla"});
}

TEST_CASE("every cache: layers that engines leave in 16 bits are in none of the simulated bytes") {
  Json json = config_json(64);
  json["num_hidden_layers"] = 6;
  const ModelConfig config = parse_model_config(json);
  std::vector<LayerKvScales> scales(6);
  leave_plain(scales, CacheFormat::kInt4PerTokenHead, config);
  CHECK(std::ranges::none_of(scales, &LayerKvScales::ignored));
  leave_plain(scales, CacheFormat::kTurboquantK8V4, config);
  std::vector<bool> ignored;
  for (const LayerKvScales& layer : scales) ignored.push_back(layer.ignored);
  CHECK(ignored == std::vector<bool>{true, true, false, false, true, true});
  // Two heads a layer: four layers of 2 · 64 values in two bytes, two of 64 + 32 + 4 bytes.
  CHECK(KvCache::bytes_per_token(config, CacheFormat::kTurboquantK8V4, scales) ==
        2 * (4 * 256 + 2 * 100));
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
  REQUIRE(result.variants.size() == 6);
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
