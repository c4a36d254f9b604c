#include "synth/synthetic.h"

#include <algorithm>
#include <cmath>

#include "family/expected_tensors.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"
#include "synth/synthetic_values.h"

using namespace kvcal;
using test::contains;
using test::contents_of;
using test::message_of;
using test::model_fixture;
using test::model_fixture_names;
using test::ScratchFolder;

namespace {

constexpr int64_t kTokens = 24;

Json fixture_config(const std::string& name) {
  return parse_json(read_text(model_fixture(name) / "config.json"), {.has_python_constants = true});
}

/// A checkpoint in a folder of its own.
struct Synthetic {
  explicit Synthetic(const Json& config, const SyntheticOptions& options = {}) {
    SilentDiagnostics silent;
    made = write_synthetic_checkpoint(config, options, folder.path(), silent);
  }
  ScratchFolder folder;
  SyntheticCheckpoint made;
};

std::map<std::string, std::string> tensor_bytes(const ModelDir& model_dir) {
  std::map<std::string, std::string> tensors;
  for (const std::string& name : model_dir.tensor_names()) {
    const auto bytes = model_dir.tensor(name).bytes;
    tensors[name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return tensors;
}

double median_of(const MagnitudeHistogram& histogram) {
  uint64_t total = 0, below = 0;
  for (const uint64_t count : histogram.counts) total += count;
  for (int bin = 0; bin < MagnitudeHistogram::kBins; ++bin) {
    below += histogram.counts[static_cast<size_t>(bin)];
    if (2 * below >= total) return static_cast<double>(MagnitudeHistogram::lower_edge(bin + 1));
  }
  return 0.0;
}

/// Largest over median magnitude, of the heads the one where that is smallest and largest.
struct Ratios {
  double least = 1e30, most = 0.0;
};
Ratios ratios_of(const KvObservation& seen) {
  Ratios ratios;
  for (size_t head = 0; head < seen.histograms.size(); ++head) {
    const double amax =
        std::max(std::fabs(seen.ranges[head].min), std::fabs(seen.ranges[head].max));
    CHECK(std::isfinite(amax));
    const double ratio = amax / median_of(seen.histograms[head]);
    ratios.least = std::min(ratios.least, ratio);
    ratios.most = std::max(ratios.most, ratio);
  }
  return ratios;
}

std::vector<TokenId> some_ids(const ModelConfig& config) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < kTokens; ++i)
    ids.push_back(static_cast<TokenId>((i * 7 + 3) % config.vocab_size));
  return ids;
}

/// A norm of K without a weight (Llama 4, nanochat) divides each token by its outlier, so that the
/// ratio is a gain of 10 times the median of a normal, 0.67. Without an outlier the norm would
/// leave at most √head_dim / 0.67, which is 4.2 in the fixtures.
double least_k_ratio(const ModelConfig& config) {
  const auto& plain = config.architecture->plain_norms;
  return std::ranges::find(plain, Role::kKeyNorm) == plain.end() ? 10.0 : 6.5;
}

/// Root of the mean square over a tensor.
double rms_of(const TensorView& tensor) {
  double sum = 0.0;
  const std::vector<float> values = as_float32(std::span(&tensor, 1));
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("synthetic: every family's checkpoint binds, runs, and has outliers in K and not in V") {
  const auto backend = kBackends.at("cpu")({.num_threads = 2});
  for (const std::string& name : model_fixture_names()) {
    INFO("config of " << name);
    const Synthetic synthetic(fixture_config(name), {.seed = 5, .dtype = DType::kF32});
    const ModelDir model_dir(synthetic.folder.path());
    const ModelConfig config = read_model_config(model_dir);
    CHECK(config.dtype == "float32");
    const Weights weights(model_dir, config);
    const std::vector<TokenId> ids = some_ids(config);
    const std::vector<std::span<const TokenId>> samples{ids};
    SilentDiagnostics silent;
    LayerwiseForward forward(config, weights, *backend, samples, {}, silent);
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      INFO("layer " << layer);
      if (!config.has_attention(layer)) {
        forward.advance_without_attention(layer);
        continue;
      }
      const LayerObservation seen = forward.observe_and_advance_exact(layer);
      // A normal's largest of these few hundred is 4 to 7 times its median, and the gain is 10 to
      // 30 in one channel of every head.
      const bool has_values = config.cache(layer).v_dim > 0;
      const Ratios k = ratios_of(seen.k), v = has_values ? ratios_of(seen.v) : Ratios{};
      // Of heads of two channels one is the outlier, and no median tells it. A limit of Q, K and V
      // cuts outliers.
      if (config.cache(layer).k_dim > 2 && config.qkv_limit == 0.0f)
        CHECK(k.least > least_k_ratio(config));
      CHECK(k.most < 300.0);
      CHECK(v.most < 12.0);
    }
  }
}

TEST_CASE("synthetic: activations neither vanish nor explode through sixty layers") {
  Json config = fixture_config("llama");
  config["num_hidden_layers"] = 60;
  const Synthetic synthetic(config, {.dtype = DType::kF32});
  const ModelDir model_dir(synthetic.folder.path());
  const ModelConfig parsed = read_model_config(model_dir);
  const Weights weights(model_dir, parsed);
  const auto backend = kBackends.at("cpu")({.num_threads = 1});
  const std::vector<TokenId> ids = some_ids(parsed);
  const std::vector<std::span<const TokenId>> samples{ids};
  SilentDiagnostics silent;
  LayerwiseForward forward(parsed, weights, *backend, samples, {}, silent);
  std::vector<double> down_inputs;
  forward.observe_linear_inputs([&](const LinearInput& input) {
    if (input.role != Role::kDown) return;
    double sum = 0.0;
    const auto count = static_cast<size_t>(input.rows * input.width);
    REQUIRE(input.type == ComputeType::kFloat32);
    for (const float x : std::span(reinterpret_cast<const float*>(input.x), count))
      sum += static_cast<double>(x) * static_cast<double>(x);
    down_inputs.push_back(std::sqrt(sum / static_cast<double>(count)));
  });
  for (int64_t layer = 0; layer < 60; ++layer) forward.observe_and_advance_exact(layer);
  REQUIRE(down_inputs.size() >= 59);
  for (const double rms : down_inputs) {
    CHECK(rms > 0.1);
    CHECK(rms < 3.0);
  }
}

TEST_CASE("synthetic: the same seed gives the same bytes on any number of threads") {
  for (const std::string name : {"llama", "gpt2", "deepseek_v3", "jamba"}) {
    INFO(name);
    const Json config = fixture_config(name);
    const auto one = contents_of(Synthetic(config, {.seed = 1, .threads = 1}).folder.path());
    CHECK(contents_of(Synthetic(config, {.seed = 1, .threads = 2}).folder.path()) == one);
    CHECK(contents_of(Synthetic(config, {.seed = 1, .threads = 5}).folder.path()) == one);
    const auto other = contents_of(Synthetic(config, {.seed = 2, .threads = 2}).folder.path());
    CHECK(other.at("config.json") == one.at("config.json"));
    CHECK(other.at("model.safetensors") != one.at("model.safetensors"));
  }
}

TEST_CASE("synthetic: shards hold the tensors of one file, and none is larger than asked for") {
  const Json config = fixture_config("mixtral");
  const Synthetic whole(config, {.seed = 3});
  const Synthetic parts(config, {.seed = 3, .max_shard_bytes = 20000});
  CHECK(whole.made.num_files == 1);
  const ModelDir one(whole.folder.path()), many(parts.folder.path());
  REQUIRE(many.shards().size() > 2);
  CHECK(parts.made.num_files == static_cast<int64_t>(many.shards().size()));
  CHECK(many.index()->at("metadata").at("total_size").get<uint64_t>() == parts.made.bytes);
  CHECK(tensor_bytes(one) == tensor_bytes(many));
  for (const SafetensorsFile& shard : many.shards()) {
    uint64_t bytes = 0;
    for (const TensorView& tensor : shard.tensors()) bytes += tensor.bytes.size();
    CHECK((bytes <= 20000 || shard.tensors().size() == 1));
    CHECK(shard.metadata().at("format") == "pt");
  }
}

TEST_CASE("synthetic: a tensor larger than the buffers is the same values, whoever makes them") {
  Json config = fixture_config("llama");
  config["vocab_size"] = 100'000;
  config["num_hidden_layers"] = 1;
  const Synthetic synthetic(config, {.seed = 8, .dtype = DType::kBF16, .threads = 3});
  const ModelDir model_dir(synthetic.folder.path());
  const ModelConfig parsed = read_model_config(model_dir);
  for (const ExpectedTensor& tensor : expected_tensors(parsed)) {
    const TensorView& found = model_dir.tensor(tensor.name);
    std::vector<std::byte> whole(found.bytes.size());
    SyntheticValues(tensor, parsed, 8).fill(DType::kBF16, 0, whole);
    CHECK(std::equal(whole.begin(), whole.end(), found.bytes.begin(), found.bytes.end()));
  }
}

TEST_CASE("synthetic: values are spread as asked for") {
  Json config = fixture_config("llama");
  config["vocab_size"] = 20'000;
  const Synthetic synthetic(config, {.dtype = DType::kF32});
  const ModelDir model_dir(synthetic.folder.path());
  const ModelConfig parsed = read_model_config(model_dir);
  const auto hidden = static_cast<double>(parsed.hidden_size);
  const double share = 1.0 / std::sqrt(2.0 * static_cast<double>(parsed.num_hidden_layers));
  const auto rms = [&](const std::string& name) { return rms_of(model_dir.tensor(name)); };
  CHECK(std::fabs(rms("lm_head.weight") * std::sqrt(hidden) - 1.0) < 0.01);
  CHECK(std::fabs(rms("model.embed_tokens.weight") - 1.0) < 0.01);
  CHECK(std::fabs(rms("model.layers.0.self_attn.v_proj.weight") * std::sqrt(hidden) - 1.0) < 0.15);
  CHECK(std::fabs(rms("model.layers.0.mlp.down_proj.weight") *
                      std::sqrt(static_cast<double>(parsed.intermediate_size)) / share -
                  1.0) < 0.15);
  CHECK(std::fabs(rms("model.norm.weight") - 1.0) < 0.05);
  // Nearly normal: a normal has 4.55 % outside of two deviations, and its fourth moment is 3.
  const auto values = model_dir.tensor("model.embed_tokens.weight").as<float>();
  double fourth = 0.0, sum = 0.0;
  int64_t outside = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    fourth += std::pow(static_cast<double>(value), 4);
    outside += std::fabs(value) > 2.0f ? 1 : 0;
  }
  const auto count = static_cast<double>(values.size());
  CHECK(std::fabs(sum / count) < 0.01);
  CHECK(std::fabs(fourth / count - 2.7) < 0.05);
  CHECK(std::fabs(static_cast<double>(outside) / count - 0.045) < 0.005);
}

TEST_CASE("synthetic: K's gains are 10 to 30 in a few channels of every head, by seed and layer") {
  ModelConfig config = parse_model_config(fixture_config("llama"));
  config.layers.resize(5);
  for (LayerConfig& layer : config.layers) layer.cache = {.heads = 64, .k_dim = 128, .v_dim = 128};
  const std::vector<float> gains = key_gains(config, 3, 11);
  REQUIRE(gains.size() == 64 * 128);
  for (size_t head = 0; head < 64; ++head) {
    int64_t outliers = 0;
    for (size_t i = 0; i < 128; ++i) {
      const float gain = gains[head * 128 + i];
      if (gain == 1.0f) continue;
      ++outliers;
      CHECK(gain >= 10.0f);
      CHECK(gain <= 30.0f);
      CHECK(i % 64 >= 32);  // turns slowly
    }
    CHECK(outliers >= 1);
    CHECK(outliers <= 4);
  }
  CHECK(key_gains(config, 3, 11) == gains);
  CHECK(key_gains(config, 4, 11) != gains);
  CHECK(key_gains(config, 3, 12) != gains);
}

TEST_CASE("synthetic: the first layers alone are a model, with the lists of all layers cut") {
  for (const std::string& name : model_fixture_names()) {
    const Json config = fixture_config(name);
    const ModelConfig all = parse_model_config(synthetic_config(config, {}));
    INFO("config of " << name);
    int64_t cuts = 0;
    for (int64_t layers = 1; layers <= all.num_hidden_layers; ++layers) {
      if (all.last_attention_layer() >= layers && !all.has_attention(0)) continue;
      ++cuts;
      const Synthetic synthetic(config, {.num_layers = layers});
      const ModelDir model_dir(synthetic.folder.path());
      const ModelConfig cut = read_model_config(model_dir);
      CHECK(cut.num_hidden_layers == layers);
      CHECK(synthetic.made.num_layers == layers);
      CHECK(message_of([&] { Weights(model_dir, cut); }) == "no error");
      for (size_t layer = 0; layer < static_cast<size_t>(layers); ++layer) {
        CHECK(cut.layers[layer].has_attention == all.layers[layer].has_attention);
        CHECK(cut.layers[layer].has_recurrence == all.layers[layer].has_recurrence);
        CHECK(cut.layers[layer].is_moe == all.layers[layer].is_moe);
        // Of some families the last layer, whichever it is, has no window.
        const bool is_made_full =
            all.architecture->ends_with_full_attention && layer + 1 == static_cast<size_t>(layers);
        CHECK(cut.layers[layer].rope == (is_made_full ? 0 : all.layers[layer].rope));
      }
    }
    CHECK(cuts > 0);
  }
}

TEST_CASE("synthetic: config.json is kept but for layers, dtype and quantization") {
  const Json config = fixture_config("deepseek_v3_fp8");
  REQUIRE(config.contains("quantization_config"));
  Json expected = config;
  expected.erase("quantization_config");
  expected.erase("dtype");
  expected["torch_dtype"] = "float16";
  Json found = synthetic_config(config, {.dtype = DType::kF16});
  if (config.contains("dtype")) {
    CHECK(found.at("dtype") == "float16");
    found.erase("dtype");
    found["torch_dtype"] = "float16";
  }
  CHECK(sorted_keys(found) == sorted_keys(expected));

  const Json nested = synthetic_config(fixture_config("gemma3_multimodal"), {.num_layers = 2});
  CHECK(nested.at("text_config").at("num_hidden_layers") == 2);
  CHECK_FALSE(nested.contains("num_hidden_layers"));
}

TEST_CASE("synthetic: the dtype is config.json's, or the one asked for") {
  Json config = fixture_config("llama");
  config["torch_dtype"] = "float16";
  CHECK(Synthetic(config).made.dtype == DType::kF16);
  CHECK(Synthetic(config, {.dtype = DType::kF32}).made.dtype == DType::kF32);
  config.erase("torch_dtype");
  config.erase("dtype");
  const Synthetic synthetic(config);
  CHECK(synthetic.made.dtype == DType::kBF16);
  CHECK(ModelDir(synthetic.folder.path()).config().at("torch_dtype") == "bfloat16");
}

TEST_CASE("synthetic: what cannot be made is refused") {
  const Json config = fixture_config("llama");
  const auto refusal = [](const Json& json, const SyntheticOptions& options) {
    return message_of([&] { Synthetic(json, options); });
  };
  CHECK(refusal(config, {.num_layers = 3}) == "has 2 layers, 3 were asked for; expected 1 to 2");
  CHECK(refusal(config, {.num_layers = 0}) == "has 2 layers, 0 were asked for; expected 1 to 2");
  Json unknown = config;
  unknown["model_type"] = "lama";
  CHECK(contains(refusal(unknown, {}), "did you mean 'llama'"));
  CHECK(contains(refusal(fixture_config("jamba"), {.num_layers = 1}),
                 "the first 1 of 3 layers: no layer of the model has attention"));
  Json huge = config;
  huge["vocab_size"] = 1 << 24;
  huge["hidden_size"] = 6 << 17;
  CHECK(contains(refusal(huge, {}), "free; --layers writes fewer"));
}
