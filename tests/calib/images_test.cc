// Samples with images against transformers, which ran the whole model with pixels:
// reference/image_fixtures.py.
#include <algorithm>
#include <cmath>

#include "backend/memory.h"
#include "datasets/dataset.h"
#include "family/image_rules.h"
#include "forward/divided_forward.h"
#include "support/catch.h"
#include "support/every_backend.h"
#include "support/model_fixture.h"

using namespace kvcal;
using kvcal::test::ModelFixture;

namespace {

constexpr double kTolerance = 1e-4;

fs::path fixtures() {
  return test::tests_folder() / "fixtures" / "images";
}

/// The samples of a fixture, with names of their own that a test may change.
struct ImageSamples {
  explicit ImageSamples(const ModelFixture& model) {
    SilentDiagnostics silent;
    const auto dataset = open_dataset(model.folder / "samples");
    samples = read_samples(*dataset, nullptr, nullptr, model.config.vocab_size, {}, silent);
    for (const Sample& sample : samples) {
      ids.emplace_back(sample.ids);
      images.push_back(sample.embedded ? *sample.embedded : EmbeddedTokens{});
    }
  }
  LayerwiseOptions options() const {
    LayerwiseOptions options;
    for (const EmbeddedTokens& one : images) options.embedded.push_back(&one);
    return options;
  }

  std::vector<Sample> samples;
  std::vector<std::span<const TokenId>> ids;
  std::vector<EmbeddedTokens> images;
};

/// What a pass over all layers sees: K and V of each layer, and the input of lm_head [tokens,
/// hidden_size].
struct Seen {
  std::vector<LayerObservation> layers;
  std::vector<float> head_input;
};

Seen run(ModelFixture& model, const ImageSamples& samples, const LayerwiseOptions& options) {
  Seen seen;
  SilentDiagnostics silent;
  LayerwiseForward forward(model.config, model.weights, *model.backend, samples.ids, options,
                           silent);
  forward.request({.head = true, .linears = LinearDetail::kSamples});
  forward.observe_linear_inputs([&](const LinearInput& input) {
    if (input.role != Role::kLmHead) return;
    const auto rows =
        downloaded(*model.backend, static_cast<const float*>(input.x), input.rows * input.width);
    seen.head_input.insert(seen.head_input.end(), rows.begin(), rows.end());
  });
  for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) {
    if (model.config.has_attention(layer))
      seen.layers.push_back(forward.observe_and_advance_exact(layer));
    else
      seen.layers.emplace_back().linears = forward.advance_without_attention(layer).linears;
  }
  forward.observe_head();
  return seen;
}

/// Logits of all samples, one behind the other, [tokens, vocab].
std::vector<float> logits_of(const ModelFixture& model, const std::vector<float>& head_input) {
  const ModelConfig& config = model.config;
  const Role role = model.weights.has(Role::kLmHead) ? Role::kLmHead : Role::kEmbedding;
  const std::vector<float> head = as_float32(std::span(&model.weights.at(role), 1));
  const auto width = static_cast<size_t>(config.hidden_size);
  std::vector<float> logits;
  for (size_t row = 0; row < head_input.size(); row += width)
    for (size_t id = 0; id < static_cast<size_t>(config.vocab_size); ++id) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i)
        sum += double{head_input[row + i]} * double{head[id * width + i]};
      sum *= double{config.logits_multiplier};
      const double cap = double{config.logits_softcap};
      logits.push_back(static_cast<float>(cap > 0 ? cap * std::tanh(sum / cap) : sum));
    }
  return logits;
}

/// Largest difference, relative to the largest of expected.
double distance(std::span<const float> found, std::span<const float> expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, double{std::fabs(expected[i])});
    worst = std::max(worst, double{std::fabs(expected[i] - found[i])});
  }
  return worst / largest;
}

/// Of the logits of the last tokens of each sample, which the fixture has.
double logits_distance(const ModelFixture& model, const ImageSamples& samples, const Seen& seen) {
  const std::vector<float> all = logits_of(model, seen.head_input);
  const SafetensorsFile file(model.folder / "expected.safetensors");
  double worst = 0;
  size_t end = 0;
  for (size_t sample = 0; sample < samples.ids.size(); ++sample) {
    end += samples.ids[sample].size() * static_cast<size_t>(model.config.vocab_size);
    const auto expected = file.find("logits." + std::to_string(sample))->as<float>();
    REQUIRE(end >= expected.size());
    worst = std::max(
        worst, distance(std::span(all).subspan(end - expected.size(), expected.size()), expected));
  }
  return worst;
}

/// Logits of all tokens of the first sample.
std::vector<float> first_logits(ModelFixture& model, const ImageSamples& samples) {
  std::vector<float> logits = logits_of(model, run(model, samples, samples.options()).head_input);
  logits.resize(samples.ids[0].size() * static_cast<size_t>(model.config.vocab_size));
  return logits;
}

double amax_of(float min, float max) {
  return min > max ? 0 : double{std::max(std::fabs(min), std::fabs(max))};
}

/// The largest of a list of numbers, or 0 of null.
double largest_of(const Json& heads) {
  double largest = 0;
  for (const Json& head : heads) largest = std::max(largest, head.get<double>());
  return largest;
}

/// Of one side of one layer: each head in each sample, and both kinds of tokens over all.
void check_side(const KvObservation& seen, const Json& samples, size_t layer,
                const std::string& side) {
  const size_t heads = seen.histograms.size();
  double text = 0, images = 0;
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    const Json& own = samples[sample][layer];
    text = std::max(text, largest_of(own.at(side + "_text_amax")));
    images = std::max(images, largest_of(own.at(side + "_image_amax")));
    const Json& expected = own.at(side + "_amax");
    REQUIRE(expected.size() == heads);
    for (size_t head = 0; head < heads; ++head) {
      INFO(side << " of sample " << sample << ", layer " << layer << ", head " << head);
      const ObservedRange& range = seen.ranges[sample * heads + head];
      const double amax = expected[head].get<double>();
      CHECK(std::fabs(amax_of(range.min, range.max) - amax) <= kTolerance * amax);
    }
  }
  INFO(side << " of layer " << layer);
  REQUIRE(seen.kinds.size() == 2);
  CHECK(std::fabs(amax_of(seen.kinds[0].min, seen.kinds[0].max) - text) <= kTolerance * text);
  CHECK(std::fabs(amax_of(seen.kinds[1].min, seen.kinds[1].max) - images) <= kTolerance * images);
}

void check_extremes(const ModelFixture& model, const Seen& seen) {
  const Json& samples = model.expected.at("samples");
  for (size_t layer = 0; layer < seen.layers.size(); ++layer) {
    const bool is_own = model.config.has_own_cache(static_cast<int64_t>(layer));
    CHECK(samples[0][layer].is_null() == !is_own);
    if (!is_own) continue;
    check_side(seen.layers[layer].k, samples, layer, "k");
    check_side(seen.layers[layer].v, samples, layer, "v");
  }
}

/// The model and its samples without one of a sample's tensors, as image_fixtures.py has it.
void leave_out(const std::string& label, ModelFixture& model, ImageSamples& samples,
               std::vector<float>& zeros) {
  for (EmbeddedTokens& images : samples.images) {
    if (label == "embeddings") {
      zeros.assign(images.rows.bytes.size() / sizeof(float), 0.0f);
      images.rows.bytes = std::as_bytes(std::span(zeros));
      images.drop = {};  // they are not mapped
      return;            // the others are not compared
    }
    if (label == "position_ids") images.places.clear();
    if (label.starts_with("injected.")) images.injected.erase(std::stoll(label.substr(9)));
  }
  if (label == "bidirectional_layers")
    for (LayerConfig& layer : model.config.layers) layer.sees_images_whole = false;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(fixtures()))
    all.push_back(entry.path().filename().string());
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("images: every wrapper whose images run has a fixture") {
  std::vector<std::string> types;
  for (const std::string& name : names())
    types.push_back(ModelFixture(fixtures() / name).config.wrapper_type);
  for (const ImageRules& rules : image_rules()) {
    INFO(rules.model_type);
    CHECK(std::ranges::count(types, rules.model_type) >= 1);
  }
}

TEST_CASE("images: K, V and logits are transformers'") {
  for (const std::string& name : names())
    for (const std::string& backend : test::backend_names()) {
      INFO(name << " on " << backend);
      ModelFixture model(fixtures() / name, backend);
      const ImageSamples samples(model);
      const Seen seen = run(model, samples, samples.options());
      check_extremes(model, seen);
      CHECK(logits_distance(model, samples, seen) <= kTolerance);
    }
}

TEST_CASE("images: each tensor of a sample moves the logits as far as in transformers") {
  for (const std::string& name : names()) {
    ModelFixture model(fixtures() / name);
    const ImageSamples whole(model);
    const std::vector<float> logits = first_logits(model, whole);
    for (const auto& [label, move] : model.expected.at("moves").items()) {
      // No sample says ids of text in the place of these, or a layer without its window.
      if (label == "per_layer_ids" || label == "the window within images") continue;
      INFO(name << " without " << label);
      ModelFixture changed(fixtures() / name);
      ImageSamples samples(changed);
      std::vector<float> zeros;
      leave_out(label, changed, samples, zeros);
      const double moved = distance(first_logits(changed, samples), logits);
      const double wanted = move.get<double>();
      CHECK(std::fabs(moved - wanted) <= 0.01 * wanted);
    }
  }
}

TEST_CASE("images: batches, devices and a resumed pass change nothing") {
  for (const std::string& name : names()) {
    INFO(name);
    ModelFixture model(fixtures() / name);
    const ImageSamples samples(model);
    const Seen together = run(model, samples, samples.options());
    LayerwiseOptions alone = samples.options();
    alone.batch_tokens = 1;  // a sample a batch
    const Seen apart = run(model, samples, alone);
    REQUIRE(together.head_input.size() == apart.head_input.size());
    CHECK(distance(apart.head_input, together.head_input) <= 1e-6);

    SilentDiagnostics silent;
    const auto second = test::make_backend("cpu", 1);
    Backend* const backends[] = {model.backend.get(), second.get()};
    DividedForward divided(model.config, model.weights, backends, samples.ids, samples.options(),
                           silent);
    divided.request({});
    for (size_t layer = 0; layer < together.layers.size(); ++layer) {
      if (!model.config.has_attention(static_cast<int64_t>(layer))) {
        divided.advance_without_attention(static_cast<int64_t>(layer));
        continue;
      }
      const bool is_last = layer + 1 == together.layers.size();
      const LayerObservation seen =
          is_last ? divided.observe(static_cast<int64_t>(layer))
                  : divided.observe_and_advance_exact(static_cast<int64_t>(layer));
      const KvObservation& expected = together.layers[layer].k;
      REQUIRE(seen.k.kinds.size() == expected.kinds.size());
      for (size_t kind = 0; kind < expected.kinds.size(); ++kind)
        CHECK(std::fabs(seen.k.kinds[kind].max - expected.kinds[kind].max) <=
              1e-5f * std::fabs(expected.kinds[kind].max));
    }
  }
}
