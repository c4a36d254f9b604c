#include "sweep/results.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/join.h"
#include "core/registry.h"
#include "core/sha256.h"
#include "quant/damage_verdict.h"

namespace kvcal {
namespace {

std::string_view name_of(CellOutcome::Status status) {
  switch (status) {
    case CellOutcome::Status::kPending:
      return "pending";
    case CellOutcome::Status::kDone:
      return "done";
    case CellOutcome::Status::kFailed:
      return "failed";
  }
  return "";
}

/// A number of the cell's result; null: it has none.
const Json* number_of(const CellOutcome& outcome, const std::string& name) {
  const Json* value = outcome.result.is_object() ? find_field(outcome.result, name) : nullptr;
  return value && value->is_number() ? value : nullptr;
}

/// What the cell's cache and weights cost; nullopt: no KL was measured.
std::optional<CacheDamage> damage_of(const CellOutcome& outcome) {
  if (!number_of(outcome, "kl_mean")) return std::nullopt;
  const Json* tokens = number_of(outcome, "num_tokens");
  return read_damage(outcome.result, tokens ? tokens->get<int64_t>() : 0);
}

/// Whether each cell is on the front; nullopt for those that are not done or lack a number, which
/// stay out of the picture.
std::vector<std::optional<bool>> front_of(const ParetoAxes& axes,
                                          std::span<const CellOutcome> outcomes) {
  const auto coordinate = [](const Json& number, const Metric& metric) {
    return metric.is_less_better ? number.get<double>() : -number.get<double>();
  };
  const Metric &x = metric(axes.x), &y = metric(axes.y);
  std::vector<ParetoPoint> points;
  std::vector<size_t> shown;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Json *at_x = number_of(outcomes[i], x.name), *at_y = number_of(outcomes[i], y.name);
    if (outcomes[i].status != CellOutcome::Status::kDone || !at_x || !at_y) continue;
    const Json* error = y.error.empty() ? nullptr : number_of(outcomes[i], y.error);
    points.push_back(
        {coordinate(*at_x, x), coordinate(*at_y, y), error ? error->get<double>() : 0.0});
    shown.push_back(i);
  }
  const std::vector<bool> is_on_front = pareto_front(points);
  std::vector<std::optional<bool>> front(outcomes.size());
  for (size_t i = 0; i < shown.size(); ++i) front[shown[i]] = is_on_front[i];
  return front;
}

Json cell_json(const Cell& cell, const SweepFile& sweep, const CellOutcome& outcome,
               std::optional<bool> is_on_front) {
  Json json = {{"id", cell.id}};
  json.update(coordinates_json(cell, sweep));
  json["status"] = name_of(outcome.status);
  json["error"] = outcome.status == CellOutcome::Status::kFailed ? Json(outcome.error) : Json();
  for (const Metric& metric : all_metrics()) {
    const Json* value = number_of(outcome, metric.name);
    json[metric.name] = value ? *value : Json();
  }
  json["is_pareto"] = is_on_front ? Json(*is_on_front) : Json();
  const auto damage = damage_of(outcome);
  json["verdict"] = damage ? Json(name_of(judge(*damage).damage)) : Json();
  return json;
}

report::SweepCell page_cell(const Cell& cell, const CellOutcome& outcome, bool is_on_front) {
  report::SweepCell page{.id = cell.id,
                         .status = std::string(name_of(outcome.status)),
                         .error = outcome.error,
                         .is_pareto = is_on_front};
  if (const auto damage = damage_of(outcome)) page.verdict = words_of(judge(*damage).damage);
  for (const Metric& metric : all_metrics())
    if (const Json* value = number_of(outcome, metric.name))
      page.measures.set(metric.name, value->get<double>());
  return page;
}

/// Dimensions in the order in which cells first have them; those that never have a value are none.
std::vector<std::string> dimensions_of(const std::vector<Json>& coordinates) {
  std::vector<std::string> dimensions;
  for (const Json& cell : coordinates)
    for (const auto& [name, value] : cell.items())
      if (!value.is_null() && std::ranges::find(dimensions, name) == dimensions.end())
        dimensions.push_back(name);
  return dimensions;
}

Json models_json(const SweepFile& sweep, const SweepInputs& inputs) {
  Json list = Json::array();
  for (size_t i = 0; i < sweep.models.size(); ++i)
    list.push_back({{"name", sweep.models[i].name},
                    {"sha256", inputs.model_sha256[i]},
                    {"compute_dtype", inputs.compute_dtype[i]}});
  return list;
}

Json recipes_json(const SweepFile& sweep) {
  Json list = Json::array();
  for (const SweepRecipe& recipe : sweep.recipes)
    list.push_back({{"name", recipe.name}, {"sha256", sha256_hex(recipe.recipe.source)}});
  return list;
}

void add_reading(const RecordOptions& records, Json& json) {
  if (!records.columns.is_empty()) json["columns"] = to_json(records.columns);
  json.update(to_json(records.chat));
}

Json evaluation_json(const SweepFile& sweep, const SweepInputs& inputs) {
  Json json = {{"dataset", sweep.evaluation.dataset.filename().string()},
               {"sha256", inputs.evaluation_sha256},
               {"num_samples", sweep.evaluation.num_samples},
               {"max_seq_length", sweep.evaluation.max_seq_length},
               {"stride", sweep.evaluation.stride}};
  add_reading(sweep.evaluation.records, json);
  return json;
}

Json calibration_json(const SweepFile& sweep, const SweepInputs& inputs) {
  if (!sweep.calibration) return nullptr;
  Json json = {{"dataset", sweep.calibration->dataset.filename().string()},
               {"sha256", inputs.calibration_sha256},
               {"max_seq_length", sweep.calibration->max_seq_length}};
  add_reading(sweep.calibration->records, json);
  return json;
}

Json gsm8k_json(const SweepFile& sweep, const SweepInputs& inputs) {
  if (!sweep.gsm8k) return nullptr;
  return {{"dataset", sweep.gsm8k->dataset.filename().string()},
          {"sha256", inputs.gsm8k_sha256},
          {"num_fewshot", sweep.gsm8k->num_fewshot},
          {"limit", sweep.gsm8k->limit ? Json(*sweep.gsm8k->limit) : Json()}};
}

/// Empty for null.
std::string plain_text(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string csv_field(const Json& value) {
  const std::string text = plain_text(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::span<const Metric> all_metrics() {
  static const std::array<Metric, 14> kMetrics{
      {{"perplexity"},
       {"nll"},
       {"kl_mean", true, "kl_stderr"},
       {"kl_stderr"},
       {"kl_p99"},
       {"kl_max"},
       {"top1_agreement", false},
       {"perplexity_increase"},
       {"exact_match_strict", false, "exact_match_strict_stderr"},
       {"exact_match_strict_stderr"},
       {"exact_match_flexible", false, "exact_match_flexible_stderr"},
       {"exact_match_flexible_stderr"},
       {"bytes_per_token"},
       {"weight_bytes"}}};
  return kMetrics;
}

const Metric& metric(std::string_view name) {
  const auto metrics = all_metrics();
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  if (found != metrics.end()) return *found;
  std::vector<std::string> names;
  for (const Metric& one : metrics) names.push_back(one.name);
  fail("unknown metric '", name, "'", did_you_mean(name, names), "; known are ", join(names, ", "));
}

std::vector<bool> pareto_front(std::span<const ParetoPoint> points) {
  const auto is_better = [](const ParetoPoint& one, const ParetoPoint& other) {
    const double error = std::hypot(one.error, other.error);
    const bool is_lower = one.y < other.y - error, is_as_low = one.y <= other.y + error;
    return is_lower ? one.x <= other.x : is_as_low && one.x < other.x;
  };
  std::vector<bool> front;
  for (const ParetoPoint& point : points)
    front.push_back(std::ranges::none_of(
        points, [&](const ParetoPoint& other) { return is_better(other, point); }));
  return front;
}

Json results_json(const SweepFile& sweep, const SweepPlan& plan, const SweepInputs& inputs,
                  std::span<const CellOutcome> outcomes) {
  Json cells = Json::array();
  const std::vector<std::optional<bool>> front = front_of(sweep.pareto, outcomes);
  for (size_t i = 0; i < plan.cells.size(); ++i)
    cells.push_back(cell_json(plan.cells[i], sweep, outcomes[i], front[i]));
  return {{"version", inputs.version},
          {"name", sweep.name},
          {"models", models_json(sweep, inputs)},
          {"recipes", recipes_json(sweep)},
          {"calibration", calibration_json(sweep, inputs)},
          {"evaluation", evaluation_json(sweep, inputs)},
          {"gsm8k", gsm8k_json(sweep, inputs)},
          {"cells", std::move(cells)},
          {"pareto", {{"x", sweep.pareto.x}, {"y", sweep.pareto.y}}}};
}

report::SweepReport results_report(const SweepFile& sweep, const SweepPlan& plan,
                                   const SweepInputs& inputs,
                                   std::span<const CellOutcome> outcomes) {
  std::vector<Json> coordinates;
  for (const Cell& cell : plan.cells) coordinates.push_back(coordinates_json(cell, sweep));
  report::SweepReport page{.name = sweep.name,
                           .version = inputs.version,
                           .pareto_x = sweep.pareto.x,
                           .pareto_y = sweep.pareto.y,
                           .models = join(sweep.models, ", ", &SweepModel::name),
                           .dataset = sweep.evaluation.dataset.filename().string(),
                           .dimensions = dimensions_of(coordinates)};
  const std::vector<std::optional<bool>> front = front_of(sweep.pareto, outcomes);
  for (size_t i = 0; i < plan.cells.size(); ++i) {
    page.cells.push_back(page_cell(plan.cells[i], outcomes[i], front[i].value_or(false)));
    for (const std::string& dimension : page.dimensions)
      page.cells.back().choices.push_back(plain_text(coordinates[i].at(dimension)));
  }
  return page;
}

std::string to_csv(const Json& results) {
  std::string text;
  const auto add_line = [&](const auto& write_fields) {
    bool is_first = true;
    write_fields([&](const Json& value) {
      text += (is_first ? "" : ",") + csv_field(value);
      is_first = false;
    });
    text += "\r\n";
  };
  const Json& cells = results["cells"];
  if (cells.empty()) return text;
  add_line([&](const auto& add) {
    for (const auto& [name, value] : cells[0].items()) add(name);
  });
  for (const Json& cell : cells)
    add_line([&](const auto& add) {
      for (const auto& [name, value] : cell.items()) add(value);
    });
  return text;
}

}  // namespace kvcal
