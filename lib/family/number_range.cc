#include "family/number_range.h"

#include <algorithm>
#include <string>

namespace kvcal {
namespace {

constexpr NumberRange kOrNone{.most = 1e6};
/// A base of 1 or less turns no dimension more slowly than another.
constexpr NumberRange kBase{.least = 1.0, .most = 1e15, .is_above = true};

const NumberRange& range_of(std::string_view key) {
  const auto& rows = number_rows();
  const auto row = std::ranges::find(rows, key, &NumberRow::key);
  KVCAL_CHECK(row != rows.end());
  return row->range;
}

}  // namespace

const std::vector<NumberRow>& number_rows() {
  static const std::vector<NumberRow> kRows{
      // Norms. Published values go from 1e-12 to 1e-5; an eps near the squares of the activations
      // would erase them.
      {"rms_norm_eps", {.least = 1e-30, .most = 1.0}},
      // RoPE.
      {"rope_theta", kBase},
      {"rope_local_base_freq", kBase},
      {"alpha", {.most = 1e9}},
      {"partial_rotary_factor", {.most = 1.0, .is_above = true}},
      {"factor", kFactorRange},
      {"low_freq_factor", kFactorRange},
      {"high_freq_factor", kFactorRange},
      {"beta_fast", kFactorRange},
      {"beta_slow", kFactorRange},
      {"short_factor", kFactorRange},
      {"long_factor", kFactorRange},
      // 0 would erase K; transformers and vLLM take it as it is.
      {"attention_factor", kFactorRange},
      {"mscale", kOrNone},
      {"mscale_all_dim", kOrNone},
      {"short_mscale", kFactorRange},
      {"long_mscale", kFactorRange},
      {"llama_4_scaling_beta", kOrNone},
      {"attn_scale", kOrNone},
      // Widths, gates and mixers.
      {"block_ffn_dim_multiplier", {.most = 1024.0, .is_above = true}},
      {"activation_sparsity_pattern", {.most = 0.999999}},
      {"moe_router_logit_softcapping", {.least = -1e6, .most = 1e6}},
      {"mlp_multipliers", kFactorRange},
      {"ssm_multipliers", kFactorRange},
      {"time_step_limit", kOrNone},
  };
  return kRows;
}

void check_number(std::string_view name, double value, const NumberRange& range) {
  if (!range.contains(value))
    fail("key '", name, "' is ", value, ", expected a number ", range.is_above ? "above " : "from ",
         range.least, range.is_above ? ", up to " : " to ", range.most);
}

std::optional<double> number_of(const Json& object, std::string_view key, std::string_view name) {
  if (name.empty()) name = key;
  const std::optional<double> value = optional_number(object, name);
  if (value) check_number(name, *value, range_of(key));
  return value;
}

double required_number_of(const Json& object, std::string_view key) {
  const std::optional<double> value = number_of(object, key);
  if (!value) fail_missing(key, "a number");
  return *value;
}

double number_at(const Json& list, size_t index, std::string_view key, std::string_view name) {
  const std::string entry =
      std::string(name.empty() ? key : name) + "[" + std::to_string(index) + "]";
  const Json& value = list.at(index);
  if (!value.is_number()) fail("key '", entry, "' is ", value.dump(), ", expected a number");
  check_number(entry, value.get<double>(), range_of(key));
  return value.get<double>();
}

}  // namespace kvcal
