#include "run/kl_budget_outcome.h"

#include "core/number_text.h"

namespace kvcal {
namespace {

std::string with_error(const Likelihood& result) {
  return short_float(*result.kl_mean) + " ± " + short_float(*result.kl_stderr);
}

std::string layers_text(const std::vector<int64_t>& layers) {
  return layer_range_text(layers) + " in 16 bits";
}

Json result_json(const std::vector<int64_t>& layers, const Likelihood& result) {
  return {{"layers_16_bit", layers},
          {"kl_mean", *result.kl_mean},
          {"kl_stderr", *result.kl_stderr},
          {"perplexity_increase", *result.perplexity_increase}};
}

}  // namespace

std::string budget_text(const KlBudgetOutcome& outcome) {
  const std::string data = "the budget is " + short_float(outcome.kl_budget) + " (" +
                           std::to_string(outcome.num_sequences) +
                           (outcome.num_sequences == 1 ? " sequence, " : " sequences, ") +
                           std::to_string(outcome.measured.front().result.num_tokens) + " tokens" +
                           (outcome.is_held_out ? " that the calibration did not see)" : ")");
  const std::string none = with_error(outcome.measured.front().result);
  if (!outcome.layers)
    return none + " with every layer in FP8, and no few layers in 16 bits keep " + data;
  if (outcome.layers->empty()) return none + " with every layer in FP8; " + data;
  return with_error(outcome.result) + " with " + layers_text(*outcome.layers) + ", " + none +
         " with none; " + data;
}

Json to_json(const KlBudgetOutcome& outcome) {
  Json json = outcome.layers ? result_json(*outcome.layers, outcome.result)
                             : Json{{"layers_16_bit", nullptr}};
  json["budget"] = outcome.kl_budget;
  json["num_sequences"] = outcome.num_sequences;
  json["num_tokens"] = outcome.measured.front().result.num_tokens;
  json["held_out"] = outcome.is_held_out;
  json["measured"] = Json::array();
  for (const MixedCache& cache : outcome.measured)
    json["measured"].push_back(result_json(cache.kept, cache.result));
  return json;
}

}  // namespace kvcal
