#include "family/config_reader.h"

#include <cmath>
#include <limits>
#include <set>

#include "family/architecture.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json config_of(const std::string& fixture) {
  return parse_json(read_text(test::model_fixture(fixture) / "config.json"),
                    {.has_python_constants = true});
}

/// Names of the numbers that no model has.
class Absurd {
 public:
  explicit Absurd(const ModelConfig& config) {
    factors(config);
    sizes(config);
    ropes(config);
    layers(config);
  }
  const std::string& names() const { return names_; }

 private:
  void number(const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most))
      names_ += std::string(name) + " " + std::to_string(value) + "; ";
  }
  /// Of a number that multiplies.
  void factor(const char* name, double value) { number(name, value, 1e-7, 1e7); }
  void size(const char* name, int64_t value) {
    number(name, static_cast<double>(value), -1.0, std::ldexp(1.0, 31));
  }

  void factors(const ModelConfig& config) {
    number("norm_eps", config.norm_eps, 1e-31, 1.0);
    factor("embedding", config.embedding_multiplier);
    factor("residual", config.residual_multiplier);
    factor("logits", config.logits_multiplier);
    factor("attention input", config.attention_input_multiplier);
    factor("attention output", config.attention_output_multiplier);
    factor("mixer input", config.mixer_input_multiplier);
    factor("mixer output", config.mixer_output_multiplier);
    factor("mlp output", config.mlp_output_multiplier);
    factor("key", config.key_multiplier);
    factor("gate", config.gate_multiplier);
    factor("softmax", config.softmax_scale);
    factor("routed", config.routed_scaling_factor);
    factor("value", config.value_multiplier);
    for (const float one : config.recurrent.in_multipliers) factor("mixer", one);
    for (const float one : {config.attention_softcap, config.logits_softcap, config.qkv_limit,
                            config.activation_limit, config.router_jitter, config.topk_norm_order,
                            config.moe.logits_softcap, config.recurrent.dt_min})
      number("limit", one, 0.0, 1e7);
  }
  void sizes(const ModelConfig& config) {
    for (const int64_t one : {config.hidden_size,
                              config.intermediate_size,
                              config.vocab_size,
                              config.num_hidden_layers,
                              config.num_attention_heads,
                              config.num_key_value_heads,
                              config.head_dim,
                              config.max_position_embeddings,
                              config.moe.num_experts,
                              config.moe.experts_per_token,
                              config.moe.intermediate_size,
                              config.moe.shared_intermediate_size,
                              config.moe.num_groups,
                              config.latent.query_rank,
                              config.latent.latent_rank,
                              config.latent.nope_dim,
                              config.latent.rope_dim,
                              config.latent.value_dim,
                              config.indexer.topk,
                              config.indexer.heads,
                              config.indexer.head_dim,
                              config.recurrent.heads,
                              config.recurrent.head_dim,
                              config.recurrent.groups,
                              config.recurrent.state_dim,
                              config.recurrent.kernel,
                              config.recurrent.step_rank,
                              config.recurrent.channels,
                              config.layer_input_size,
                              config.layer_input_vocab,
                              config.streams,
                              config.laurel_rank,
                              config.weight_block_rows,
                              config.weight_block_columns})
      size("size", one);
  }
  void ropes(const ModelConfig& config) {
    for (const RopeConfig& rope : config.ropes) {
      number("theta", rope.theta, 1.0, 1e30);
      number("factor", rope.factor, 1e-30, 1e7);
      for (const double one :
           {rope.low_freq_factor, rope.high_freq_factor, rope.beta_fast, rope.beta_slow,
            rope.mscale, rope.mscale_all_dim, rope.attention_factor, rope.short_mscale,
            rope.long_mscale, rope.query_beta})
        number("rope", one, 0.0, 1e7);
      for (const auto* list : {&rope.short_factor, &rope.long_factor})
        for (const double one : *list) number("longrope", one, 0.0, 1e7);
      size("rope length", rope.original_max_position_embeddings);
      size("rope length", rope.max_position_embeddings);
      size("rope dim", rope.rotary_dim);
    }
  }
  void layers(const ModelConfig& config) {
    for (const LayerConfig& layer : config.layers) {
      size("window", layer.sliding_window);
      size("chunk", layer.chunk);
      size("width", layer.intermediate_size);
      size("heads", layer.cache.width());
      number("sparsity", layer.activation_sparsity, 0.0, 0.9999995);
    }
  }

  std::string names_;
};

/// Calls visit with every number of json, in place.
template <class Visit>
void for_each_number(Json& json, const std::string& path, const Visit& visit) {
  if (json.is_number()) return visit(path, json);
  if (!json.is_structured()) return;
  if (json.is_object())
    for (auto& [key, value] : json.items()) for_each_number(value, path + "." + key, visit);
  if (json.is_array())
    for (Json& value : json) for_each_number(value, path + "[]", visit);
}

}  // namespace

// Every number of every fixture, read or not, at the ends of what JSON can hold: refused, or
// nothing came of it.
TEST_CASE("number_range: no number of a config.json becomes an absurd one") {
  const std::vector<Json> ends{1e39,    -1e39, 1e300, -1e300,           1e-300,
                               -1e-300, 0.0,   -1.0,  int64_t{1} << 62, -(int64_t{1} << 62)};
  int64_t refused = 0;
  for (const std::string& fixture : test::model_fixture_names()) {
    Json json = config_of(fixture);
    if (json.contains("vision_config")) json.erase("vision_config");
    CHECK(Absurd(parse_model_config(json)).names().empty());
    for_each_number(json, "", [&](const std::string& path, Json& number) {
      const Json sound = number;
      for (const Json& end : ends) {
        number = end;
        INFO(fixture << ": " << path << " = " << end.dump());
        std::string absurd;
        try {
          absurd = Absurd(parse_model_config(json)).names();
        } catch (const Error&) {
          ++refused;
        }
        CHECK(absurd.empty());
      }
      number = sound;
    });
  }
  CHECK(refused > 1000);
}

TEST_CASE("number_range: the message names key, value and range") {
  Json json = config_of("llama");
  json["rms_norm_eps"] = 1e39;
  CHECK(test::message_of([&] { parse_model_config(json); }) ==
        "key 'rms_norm_eps' is 1e+39, expected a number from 1e-30 to 1");
  json = config_of("granite");
  json["logits_scaling"] = 1e-300;
  CHECK(test::message_of([&] { parse_model_config(json); }) ==
        "key 'logits_scaling' is 1e-300, expected a number from 1e-06 to 1e+06");
  json = config_of("llama_rope_yarn");
  (json.contains("rope_parameters") ? json["rope_parameters"]
                                    : json["rope_scaling"])["attention_factor"] = 0.0;
  CHECK(test::contains(test::message_of([&] { parse_model_config(json); }),
                       "key 'attention_factor' is 0, expected a number from 1e-06"));
}

TEST_CASE("number_range: a row for each key, of a range that is not empty") {
  std::set<std::string_view> keys;
  for (const NumberRow& row : number_rows()) {
    CHECK(keys.insert(row.key).second);
    CHECK(row.range.least < row.range.most);
    CHECK_FALSE(row.range.contains(std::numeric_limits<double>::quiet_NaN()));
    CHECK_FALSE(row.range.contains(std::numeric_limits<double>::infinity()));
  }
}

}  // namespace kvcal
