#include "sweep/results.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/sha256.h"
#include "sweep/metrics.h"

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

Json cell_json(const Cell& cell, const SweepFile& sweep, const CellOutcome& outcome) {
  Json json = {{"id", cell.id}};
  json.update(coordinates_json(cell, sweep));
  json["status"] = name_of(outcome.status);
  json["error"] = outcome.status == CellOutcome::Status::kFailed ? Json(outcome.error) : Json();
  for (const Metric& metric : all_metrics()) {
    const Json* value =
        outcome.result.is_object() ? find_field(outcome.result, metric.name) : nullptr;
    json[metric.name] = value ? *value : Json();
  }
  json["is_pareto"] = nullptr;
  return json;
}

/// Only cells that are done and have both numbers are in the picture; the others keep null.
void mark_front(const ParetoAxes& axes, Json& cells) {
  const auto coordinate = [](const Json& cell, const Metric& metric) {
    const double value = cell[metric.name].get<double>();
    return metric.is_less_better ? value : -value;
  };
  const Metric &x = metric(axes.x), &y = metric(axes.y);
  std::vector<ParetoPoint> points;
  std::vector<Json*> shown;
  for (Json& cell : cells) {
    if (cell["status"] != name_of(CellOutcome::Status::kDone) || !cell[x.name].is_number() ||
        !cell[y.name].is_number())
      continue;
    points.push_back({coordinate(cell, x), coordinate(cell, y)});
    shown.push_back(&cell);
  }
  const std::vector<bool> front = pareto_front(points);
  for (size_t i = 0; i < shown.size(); ++i) (*shown[i])["is_pareto"] = bool{front[i]};
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

Json calibration_json(const SweepFile& sweep, const SweepInputs& inputs) {
  if (!sweep.calibration) return nullptr;
  return {{"dataset", sweep.calibration->dataset.filename().string()},
          {"sha256", inputs.calibration_sha256},
          {"max_seq_length", sweep.calibration->max_seq_length}};
}

Json gsm8k_json(const SweepFile& sweep, const SweepInputs& inputs) {
  if (!sweep.gsm8k) return nullptr;
  return {{"dataset", sweep.gsm8k->dataset.filename().string()},
          {"sha256", inputs.gsm8k_sha256},
          {"num_fewshot", sweep.gsm8k->num_fewshot},
          {"limit", sweep.gsm8k->limit ? Json(*sweep.gsm8k->limit) : Json()}};
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::vector<bool> pareto_front(std::span<const ParetoPoint> points) {
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(points[i].x, points[i].y); });
  std::vector<bool> front(points.size());
  const ParetoPoint* lowest = nullptr;  // of the points so far, none of which is further right
  for (const size_t i : order) {
    const ParetoPoint& point = points[i];
    front[i] = !lowest || point.y < lowest->y || (point.x == lowest->x && point.y == lowest->y);
    if (front[i]) lowest = &point;
  }
  return front;
}

Json results_json(const SweepFile& sweep, const SweepPlan& plan, const SweepInputs& inputs,
                  std::span<const CellOutcome> outcomes) {
  Json cells = Json::array();
  for (size_t i = 0; i < plan.cells.size(); ++i)
    cells.push_back(cell_json(plan.cells[i], sweep, outcomes[i]));
  mark_front(sweep.pareto, cells);
  return {{"version", inputs.version},
          {"name", sweep.name},
          {"models", models_json(sweep, inputs)},
          {"recipes", recipes_json(sweep)},
          {"calibration", calibration_json(sweep, inputs)},
          {"evaluation",
           {{"dataset", sweep.evaluation.dataset.filename().string()},
            {"sha256", inputs.evaluation_sha256},
            {"num_samples", sweep.evaluation.num_samples},
            {"max_seq_length", sweep.evaluation.max_seq_length},
            {"stride", sweep.evaluation.stride}}},
          {"gsm8k", gsm8k_json(sweep, inputs)},
          {"cells", std::move(cells)},
          {"pareto", {{"x", sweep.pareto.x}, {"y", sweep.pareto.y}}}};
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
