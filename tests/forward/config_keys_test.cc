// Every key of the fixtures' configs, changed one at a time, against transformers
// (reference/config_keys.py).

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forward/decoder.h"
#include "forward/layerwise.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/step_all.h"

using namespace kvcal;

namespace {

/// Of numbers that transformers has, too; of numbers that stay.
constexpr double kSameModel = 1e-4, kUnchanged = 1e-6;

/// A change that we take otherwise, and why.
struct Exception {
  std::string_view fixture, key, reason;  ///< fixture: empty for any
};
constexpr std::array kExceptions{
    Exception{
        "", "tie_word_embeddings",
        "transformers 5 leaves an lm_head that a checkpoint has as it is; vLLM and SGLang tie "
        "it, as config.json says; K and V are the same"},
    Exception{"dbrx", "attn_config.rope_theta",
              "transformers 5 passes over it; vLLM takes it, and published models have it"},
    Exception{"dbrx_norm", "attn_config.rope_theta", "likewise"},
    Exception{"fuyu", "rope_parameters",
              "transformers 5 passes over it in a file without text_config; it saves one"},
    Exception{"fuyu", "rope_parameters.rope_theta", "likewise"},
    Exception{"fuyu", "rope_parameters.partial_rotary_factor", "likewise"},
    Exception{"gemma4_unified", "audio_token_id",
              "transformers gives a place of audio the embedding of padding; no text has one"},
    Exception{"youtu", "pad_token_id",
              "transformers clears the row of a padding token as it loads; no text has one"}};

bool is_excepted(std::string_view fixture, std::string_view key) {
  return std::ranges::any_of(kExceptions, [&](const Exception& one) {
    return (one.fixture.empty() || one.fixture == fixture) && one.key == key;
  });
}

/// The object that holds a dotted key, and the key in it. Objects that are missing are made.
std::pair<Json*, std::string> place_of(Json& config, std::string_view name) {
  Json* place = &config;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
    Json& inner = (*place)[std::string(name.substr(0, dot))];
    if (inner.is_null()) inner = Json::object();
    place = &inner;
    name.remove_prefix(dot + 1);
  }
  return {place, std::string(name)};
}

/// config with the value of a dotted key; value: nullptr takes the key away. "a>b": the value of a
/// goes to b.
Json changed(Json config, std::string_view name, const Json* value) {
  const size_t arrow = name.find('>');
  const auto [place, key] = place_of(config, name.substr(0, arrow));
  if (value) {
    (*place)[key] = *value;
    return config;
  }
  const Json moved = place->value(key, Json());
  place->erase(key);
  if (arrow == std::string_view::npos) return config;
  const auto [target, other] = place_of(config, name.substr(arrow + 1));
  (*target)[other] = moved;
  return config;
}

double amax_of(const std::vector<ObservedRange>& ranges) {
  double amax = 0.0;
  for (const ObservedRange& range : ranges)
    if (range.min <= range.max)  // else there are no values
      amax = std::max({amax, std::fabs(double{range.min}), std::fabs(double{range.max})});
  return amax;
}

double rms_of(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += std::pow(static_cast<double>(value), 2);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

/// A checkpoint whose config is changed.
class ChangedModel {
 public:
  explicit ChangedModel(const std::string& name)
      : dir_(test::model_fixture(name)),
        config_(dir_.config()),
        ids_(parse_json(read_text(test::model_fixture(name) / "expected.json"))
                 .at("ids")
                 .get<std::vector<TokenId>>()),
        backend_(test::make_backend("cpu", 2)) {}

  const Json& config() const { return config_; }

  /// What config_keys.py summarizes: root mean squares of all logits and of the last token's, then
  /// the largest K and V of each layer; nullopt where kvcal refuses the config.
  std::optional<std::vector<double>> numbers(const Json& config) {
    try {
      dir_.set_config(config);
      ModelConfig read = read_model_config(dir_);
      const Weights weights(dir_, read);
      weights.check_head();
      read.unread_keys.clear();
      if (base_ && *base_ == read) return base_numbers_;
      std::vector<double> numbers = numbers_of(read, weights);
      if (!base_) {
        base_ = read;
        base_numbers_ = numbers;
      }
      return numbers;
    } catch (const Error& error) {
      CHECK(std::string(error.what()).size() > 10);
      return std::nullopt;
    }
  }

 private:
  std::vector<double> numbers_of(const ModelConfig& config, const Weights& weights) {
    Decoder decoder(config, weights, *backend_, ComputeType::kFloat32);
    KvCache cache = decoder.make_cache(KvDType::kFloat32, {}, std::ssize(ids_));
    const std::vector<float> logits = test::step_all(decoder, ids_, cache);
    const auto vocabulary = static_cast<size_t>(config.output_vocab_size);
    std::vector<double> all{rms_of(logits), rms_of(std::span(logits).last(vocabulary))};
    const std::vector<std::span<const TokenId>> samples{ids_};
    SilentDiagnostics silent;
    LayerwiseForward forward(config, weights, *backend_, samples,
                             {.compute_type = ComputeType::kFloat32}, silent);
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      if (!config.has_attention(layer)) {
        forward.advance_without_attention(layer);
        continue;
      }
      const LayerObservation seen = forward.observe_and_advance_exact(layer);
      if (!config.has_own_cache(layer)) continue;
      all.push_back(amax_of(seen.k.ranges));
      all.push_back(amax_of(seen.v.ranges));
    }
    return all;
  }

  ModelDir dir_;
  Json config_;
  std::vector<TokenId> ids_;
  std::unique_ptr<Backend> backend_;
  std::optional<ModelConfig> base_;  ///< the first that ran; what equals it need not run again
  std::vector<double> base_numbers_;
};

/// The largest relative difference; of other counts: 1.
double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return 1.0;
  double worst = 0.0;
  for (size_t i = 0; i < found.size(); ++i)
    worst = std::max(worst, test::relative_error(found[i], expected[i]));
  return worst;
}

/// What is wrong with our answer to a change; empty: nothing. result: transformers' answer.
std::string judged(ChangedModel& model, const Json& config, const Json& result,
                   const std::vector<double>& base) {
  const auto numbers = model.numbers(config);
  if (!numbers) return "";
  const bool stays = result.is_number();
  const double off = distance(*numbers, stays ? base : result.get<std::vector<double>>());
  if (off <= (stays ? kUnchanged : kSameModel)) return "";
  const bool is_ignored = distance(*numbers, base) <= kUnchanged;
  return (stays        ? "changes nothing in transformers, and here by "
          : is_ignored ? "changes nothing here, and in transformers by "
                       : "differs from transformers by ") +
         std::to_string(off);
}

}  // namespace

TEST_CASE("config_keys: each key changes what it changes in transformers, or is refused",
          "[slow]") {
  const Json recorded =
      parse_json(read_text(test::tests_folder() / "fixtures" / "config_keys.json"),
                 {.has_python_constants = true});
  size_t changes = 0;
  std::string wrong;
  for (const auto& [name, keys] : recorded.at("models").items()) {
    ChangedModel model(name);
    const auto base = model.numbers(model.config());
    REQUIRE(base);
    for (const auto& [key, entries] : keys.items())
      for (const Json& entry : entries) {
        const Json* value = entry.size() == 2 ? &entry.at(0) : nullptr;
        const Json config = changed(model.config(), key, value);
        const std::string verdict = judged(model, config, entry.back(), *base);
        ++changes;
        if (verdict.empty() || is_excepted(name, key)) continue;
        wrong +=
            name + ": " + key + " " + (value ? value->dump() : "missing") + ": " + verdict + "\n";
      }
  }
  CHECK(wrong == "");
  CHECK(changes > 200);
}
