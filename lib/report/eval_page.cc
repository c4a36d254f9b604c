#include <algorithm>
#include <cmath>

#include "core/number_text.h"
#include "report/eval_charts.h"
#include "report/eval_sections.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

/// The variant whose number is smallest by `is_before`; nullptr where none has it.
template <class Before>
const EvalVariant* first_by(const EvalReport& report, std::string_view measure,
                            const Before& is_before) {
  const EvalVariant* first = nullptr;
  for (const EvalVariant& variant : report.variants) {
    const double value = variant.measures.at(measure);
    if (std::isnan(value)) continue;
    if (!first || is_before(value, first->measures.at(measure))) first = &variant;
  }
  return first;
}

/// A measure as tables have it.
std::string text_of(const EvalVariant& variant, std::string_view measure) {
  const Measure& found = find_measure(measure);
  const double error = variant.measures.error_of(measure);
  return found.text(variant.measures.at(measure)) +
         (error > 0.0 ? " ± " + found.text(error) : std::string());
}

void add_extremes(Tiles& tiles, const EvalReport& report) {
  const EvalVariant* least = first_by(report, "kl_mean", std::less());
  const EvalVariant* largest = first_by(report, "kl_mean", std::greater());
  if (least) tiles.add("Least mean KL", text_of(*least, "kl_mean"), least->name);
  if (largest && largest != least)
    tiles.add("Largest mean KL", text_of(*largest, "kl_mean"), largest->name);
  if (const EvalVariant* variant = first_by(report, "perplexity", std::less())) {
    const std::string reference = text_of(*variant, "reference_perplexity");
    tiles.add("Least perplexity", text_of(*variant, "perplexity"),
              variant->name + (reference == "–" ? "" : "; reference " + reference));
  }
  if (const EvalVariant* variant = first_by(report, "top1_agreement", std::greater()))
    tiles.add("Same top token", text_of(*variant, "top1_agreement"), variant->name);
  if (const EvalVariant* variant = first_by(report, "exact_match_strict", std::greater()))
    tiles.add("Exact match, strict", text_of(*variant, "exact_match_strict"), variant->name);
}

void add_choices(Tiles& tiles, const Sensitivity& sensitivity) {
  for (const MixedPrecision& row : sensitivity.rows)
    if (row.is_proposed || row.kept_layers.empty())
      tiles.add(row.is_proposed ? "Proposed: " + kept_words(row) : kept_words(row),
                "KL " + number_text(row.kl_mean), byte_text(row.bytes_per_token) + " a token");
  if (std::isfinite(sensitivity.kl_budget))
    tiles.add("KL budget", number_text(sensitivity.kl_budget), "nats, mean");
}

std::vector<std::string> verdicts_of(const EvalReport& report) {
  std::vector<std::string> verdicts;
  for (const EvalVariant& variant : report.variants)
    if (!variant.verdict.empty()) verdicts.push_back(variant.name + ": " + variant.verdict);
  return verdicts;
}

Section summary_section(const EvalReport& report) {
  Tiles tiles;
  add_extremes(tiles, report);
  if (report.sensitivity) add_choices(tiles, *report.sensitivity);
  int64_t tokens = 0;
  for (const EvalVariant& variant : report.variants) tokens = std::max(tokens, variant.num_tokens);
  if (tokens > 0)
    tiles.add("Tokens scored", std::to_string(tokens),
              report.num_sequences ? "in " + std::to_string(*report.num_sequences) + " sequences"
                                   : std::string());
  if (report.num_questions)
    tiles.add("Questions", std::to_string(*report.num_questions),
              report.num_fewshot ? std::to_string(*report.num_fewshot) + " examples before each"
                                 : std::string());
  Markup body = verdicts_list(verdicts_of(report));
  body.append(tiles.finish());
  return {"summary", "At a glance", body};
}

Section about_section(const EvalReport& report) {
  Pairs pairs{{"task", report.task},
              {"model", report.model},
              {"data set", report.dataset},
              {"reference", report.reference}};
  const auto add = [&](const char* name, const std::optional<int64_t>& number) {
    if (number) pairs.emplace_back(name, std::to_string(*number));
  };
  add("sequences", report.num_sequences);
  add("most tokens of a sequence", report.max_seq_length);
  add("stride", report.stride);
  add("questions", report.num_questions);
  add("examples before each question", report.num_fewshot);
  std::erase_if(pairs, [](const auto& pair) { return pair.second.empty(); });
  return {"facts", "What was measured", pairs_table("facts-table", "The evaluation", pairs)};
}

}  // namespace

Section variants_section(const EvalReport& report) {
  Section section{"variants", "Variants"};
  if (report.variants.empty()) return section;
  std::vector<const Measures*> all;
  for (const EvalVariant& variant : report.variants) all.push_back(&variant.measures);
  const std::vector<const Measure*> measures = known_measures(all);
  std::vector<Column> columns{{"variant"},
                              {.title = "cache", .kind = Column::Kind::kWord},
                              {.title = "scales", .kind = Column::Kind::kWord}};
  add_columns(columns, measures);
  TableMarkup table(
      {.id = "variants-table", .caption = "Accuracy of every variant", .is_sortable = true},
      columns);
  for (const EvalVariant& variant : report.variants) {
    table.row(variant.name).word(variant.kv_cache_dtype).word(variant.scales);
    add_cells(table, variant.measures, measures);
  }
  section.body.append(table.finish());
  if (!report.reference.empty())
    section.body.append(words("KL and agreement are against: " + report.reference + "."));
  return section;
}

std::string eval_page(const EvalReport& report) {
  const std::string model = report.model.substr(report.model.find_last_of('/') + 1);
  const std::string dataset = report.dataset.substr(report.dataset.find_last_of('/') + 1);
  Page page{.title = (model.empty() ? "Evaluation" : model) + ": " + report.task +
                     (dataset.empty() ? std::string() : " on " + dataset),
            .footer = "Written by kvcal " + report.version};
  page.heading.element("p", {{"class", "lead"}}, report.dataset);
  const Section all[] = {
      summary_section(report),   variants_section(report),    kl_layers_section(report),
      positions_section(report), sequences_section(report),   texts_section(report),
      questions_section(report), sensitivity_section(report), about_section(report)};
  for (const Section& section : all)
    if (!section.body.empty()) page.sections.push_back(section);
  return html(page);
}

}  // namespace kvcal::report
