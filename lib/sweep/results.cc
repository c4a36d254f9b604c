#include "sweep/results.h"

#include <algorithm>
#include <cmath>

#include "core/folder.h"
#include "core/hash.h"
#include "core/text.h"
#include "export/statistics_file.h"
#include "quant/damage_verdict.h"

namespace kvcal {
namespace {

std::string_view name_of(CellOutcome::Status status) {
  constexpr std::string_view kNames[] = {"pending", "done", "failed"};
  return kNames[static_cast<size_t>(status)];
}

/// A number of the cell's result; null: it has none.
const Json* number_of(const CellOutcome& outcome, std::string_view name) {
  const Json* value = member(outcome.result, name);
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
  const auto coordinate = [](const Json& number, const std::string& metric) {
    return kCellMetrics.at(metric) ? number.get<double>() : -number.get<double>();
  };
  const std::string_view error_key = report::find_metric(axes.y).error;
  std::vector<ParetoPoint> points;
  std::vector<size_t> shown;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Json *at_x = number_of(outcomes[i], axes.x), *at_y = number_of(outcomes[i], axes.y);
    if (outcomes[i].status != CellOutcome::Status::kDone || !at_x || !at_y) continue;
    const Json* error = error_key.empty() ? nullptr : number_of(outcomes[i], error_key);
    points.push_back(
        {coordinate(*at_x, axes.x), coordinate(*at_y, axes.y), error ? error->get<double>() : 0.0});
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
  for (const std::string& name : kCellMetrics.names()) {
    const Json* value = number_of(outcome, name);
    json[name] = value ? *value : Json();
  }
  json["is_pareto"] = or_null(is_on_front);
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
  for (const std::string& name : kCellMetrics.names())
    if (const Json* value = number_of(outcome, name)) page.metrics.set(name, value->get<double>());
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

void add_reading(const RecordOptions& records, Json& json) {
  if (const Json columns = to_json(records.columns); !columns.empty()) json["columns"] = columns;
  json.update(to_json(records.chat));
}

/// What the results were made with, in front of the cells.
Json made_with_json(const Sweep& sweep) {
  const auto& [file, plan, inputs] = sweep;
  Json json = {{"version", inputs.version},
               {"name", file.name},
               {"models", Json::array()},
               {"recipes", Json::array()},
               {"calibration", nullptr},
               {"evaluation",
                {{"dataset", file.evaluation.dataset.filename().string()},
                 {"sha256", inputs.evaluation_sha256},
                 {"num_samples", file.evaluation.num_sequences},
                 {"max_seq_length", file.evaluation.max_seq_length},
                 {"stride", file.evaluation.stride}}},
               {"gsm8k", nullptr}};
  for (size_t i = 0; i < file.models.size(); ++i)
    json["models"].push_back({{"name", file.models[i].name},
                              {"sha256", inputs.model_sha256[i]},
                              {"compute_dtype", inputs.compute_dtype[i]}});
  for (const SweepRecipe& recipe : file.recipes)
    json["recipes"].push_back(
        {{"name", recipe.name}, {"sha256", sha256_hex(recipe.recipe.source)}});
  if (const auto& text = file.calibration) {
    json["calibration"] = {{"dataset", text->dataset.filename().string()},
                           {"sha256", inputs.calibration_sha256},
                           {"max_seq_length", text->max_seq_length}};
    add_reading(text->records, json["calibration"]);
  }
  add_reading(file.evaluation.records, json["evaluation"]);
  if (const auto& asked = file.gsm8k)
    json["gsm8k"] = {{"dataset", asked->dataset.filename().string()},
                     {"sha256", inputs.gsm8k_sha256},
                     {"num_fewshot", asked->num_fewshot},
                     {"limit", or_null(asked->limit)}};
  return json;
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

using Kind = SweepTask::Kind;

/// Those that cannot be read are made again.
bool has_statistics(const fs::path& file, const std::string& fingerprint) {
  if (!is_there(file)) return false;
  try {
    read_statistics(file, fingerprint);
    return true;
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

/// Whether the scales that the cell was measured with were edited since. Where they are absent,
/// another machine may have them.
bool has_edited_scales(const Cell& cell, const SweepPlan& plan, const SweepFolder& folder) {
  if (!cell.calibration) return false;
  const fs::path file = folder.calibration(plan.calibrations[*cell.calibration].fingerprint);
  return is_there(file) && !folder.read_piece(file);
}

bool is_made(Kind kind, size_t part, const Sweep& sweep, const SweepFolder& folder) {
  const std::string& fingerprint = fingerprint_of(kind, part, sweep.plan);
  switch (kind) {
    case Kind::kObserve:
      return has_statistics(folder.statistics(fingerprint), fingerprint);
    case Kind::kCalibrate:
      return folder.read_piece(folder.calibration(fingerprint)) &&
             (!sweep.plan.calibrations[part].makes_checkpoint ||
              is_there(folder.checkpoint(fingerprint)));
    case Kind::kAnswer:
      if (!sweep.file.gsm8k) return true;
      break;
    case Kind::kEvaluate:
      break;
  }
  return folder.result(fingerprint).has_value() &&
         !has_edited_scales(sweep.plan.cells[part], sweep.plan, folder);
}

/// Adds the result of one measurement of a cell.
void add_outcome(const SweepFolder& folder, const std::string& fingerprint, CellOutcome& outcome) {
  if (const auto done = folder.result(fingerprint)) {
    outcome.result.update(*done);
    return;
  }
  if (outcome.status == CellOutcome::Status::kFailed) return;
  const auto failed = folder.read_if_sound(folder.cell_error(fingerprint));
  outcome.status = failed ? CellOutcome::Status::kFailed : CellOutcome::Status::kPending;
  if (failed) outcome.error = failed->value("error", std::string());
}

std::pair<std::string, bool> with_direction(std::string_view key) {
  return {std::string(key), report::find_metric(key).is_less_better};
}

}  // namespace

const Registry<bool> kCellMetrics{
    "metric",
    {with_direction("perplexity"), with_direction("nll"), with_direction("kl_mean"),
     with_direction("kl_stderr"), with_direction("kl_p99"), with_direction("kl_max"),
     with_direction("top1_agreement"), with_direction("perplexity_increase"),
     with_direction("exact_match_strict"), with_direction("exact_match_strict_stderr"),
     with_direction("exact_match_flexible"), with_direction("exact_match_flexible_stderr"),
     with_direction("bytes_per_token"), with_direction("weight_bytes")}};

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

Json results_json(const Sweep& sweep, std::span<const CellOutcome> outcomes) {
  Json json = made_with_json(sweep);
  json["cells"] = Json::array();
  const std::vector<std::optional<bool>> front = front_of(sweep.file.pareto, outcomes);
  for (size_t i = 0; i < sweep.plan.cells.size(); ++i)
    json["cells"].push_back(cell_json(sweep.plan.cells[i], sweep.file, outcomes[i], front[i]));
  json["pareto"] = {{"x", sweep.file.pareto.x}, {"y", sweep.file.pareto.y}};
  return json;
}

report::SweepReport results_report(const Sweep& sweep, std::span<const CellOutcome> outcomes) {
  const SweepFile& file = sweep.file;
  std::vector<Json> coordinates;
  for (const Cell& cell : sweep.plan.cells) coordinates.push_back(coordinates_json(cell, file));
  report::SweepReport page{.name = file.name,
                           .version = sweep.inputs.version,
                           .pareto_x = file.pareto.x,
                           .pareto_y = file.pareto.y,
                           .models = join(file.models, ", ", &SweepModel::name),
                           .dataset = file.evaluation.dataset.filename().string(),
                           .dimensions = dimensions_of(coordinates)};
  const std::vector<std::optional<bool>> front = front_of(file.pareto, outcomes);
  for (size_t i = 0; i < coordinates.size(); ++i) {
    page.cells.push_back(page_cell(sweep.plan.cells[i], outcomes[i], front[i].value_or(false)));
    for (const std::string& dimension : page.dimensions)
      page.cells.back().choices.push_back(plain_text(coordinates[i].at(dimension)));
  }
  return page;
}

std::string to_csv(const Json& results) {
  const Json& cells = results["cells"];
  if (cells.empty()) return "";
  const auto row = [](const Json& cell, const auto& field_of) {
    return join(cell.items(), ",", field_of) + "\r\n";
  };
  return row(cells[0], [](const auto& item) { return csv_field(item.key()); }) +
         join(cells, "", [&](const Json& cell) {
           return row(cell, [](const auto& item) { return csv_field(item.value()); });
         });
}

bool is_done(const SweepTask& task, const Sweep& sweep, const SweepFolder& folder) {
  return std::ranges::all_of(task.parts,
                             [&](size_t part) { return is_made(task.kind, part, sweep, folder); });
}

SweepProgress progress_of(const Sweep& sweep, const SweepFolder& folder) {
  const auto all_of = [&](Kind kind) {
    std::vector<bool> there(num_parts(kind, sweep.plan));
    for (size_t part = 0; part < there.size(); ++part)
      there[part] = is_made(kind, part, sweep, folder);
    return there;
  };
  return {.observations = all_of(Kind::kObserve),
          .calibrations = all_of(Kind::kCalibrate),
          .cells = all_of(Kind::kEvaluate),
          .answers = all_of(Kind::kAnswer)};
}

std::vector<CellOutcome> outcomes_of(const Sweep& sweep, const SweepFolder& folder) {
  std::vector<CellOutcome> outcomes;
  for (const Cell& cell : sweep.plan.cells) {
    CellOutcome& outcome =
        outcomes.emplace_back(CellOutcome{CellOutcome::Status::kDone, {}, Json::object()});
    add_outcome(folder, cell.fingerprint, outcome);
    if (sweep.file.gsm8k) add_outcome(folder, cell.answer_fingerprint, outcome);
  }
  return outcomes;
}

SweepResults write_results(const Sweep& sweep, const SweepFolder& folder) {
  const std::vector<CellOutcome> outcomes = outcomes_of(sweep, folder);
  SweepResults results{results_json(sweep, outcomes), results_report(sweep, outcomes)};
  folder.write(folder.results(), results.json);
  write_file_atomically(folder.csv(), to_csv(results.json), true);
  return results;
}

}  // namespace kvcal
