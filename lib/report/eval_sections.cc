#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "report/eval_charts.h"
#include "report/markup.h"

namespace kvcal::report {
namespace {

std::string as_text(int64_t number) {
  return std::to_string(number);
}

/// A chart with its legend, and its numbers: a row a place, a column a series. Nothing where there
/// is nothing to draw.
Markup charted(const SeriesChart& chart, const std::string& caption, const std::string& table_id) {
  std::vector<Column> columns{{chart.places_title}};
  for (const Series& series : chart.series) columns.push_back({series.name});
  TableMarkup table({.id = table_id, .caption = chart.title, .is_sortable = true}, columns);
  for (size_t i = 0; i < chart.places.size(); ++i) {
    table.row(chart.places[i]);
    for (const Series& series : chart.series) table.cell(number_text(series.values[i]));
  }
  return series_figure(chart, chart.id + "-mark",
                       {.caption = caption, .numbers = folded("Numbers", table.finish())});
}

/// "layers 3, 7 and 12"
std::string dearest_words(const EvalVariant& variant) {
  std::vector<LayerLikelihood> layers = variant.layers;
  const auto kl_or = [](double none) {
    return [none](const LayerLikelihood& layer) { return layer.result.kl_mean.value_or(none); };
  };
  std::ranges::stable_sort(layers, std::ranges::greater(), kl_or(-1.0));
  layers.resize(std::min<size_t>(3, layers.size()));
  return join(layers, ", ", [&](const LayerLikelihood& layer) {
    return std::to_string(layer.layer) + " (" + number_text(kl_or(std::nan(""))(layer), 3) + ")";
  });
}

Markup sequences_table(const SpreadChart& chart) {
  TableMarkup table(
      {.id = "sequences-table", .caption = chart.title + ", spread", .is_sortable = true},
      {{"variant"},
       {"sequences"},
       {"least"},
       {"quartile"},
       {"median"},
       {"upper quartile"},
       {"largest"},
       {"of sequence", "number of the sequence with the largest value, from 0"}});
  for (const SpreadRow& row : chart.rows) {
    table.row(row.name).cell(std::to_string(row.values.size()));
    for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0})
      table.cell(number_text(quantile(row.values, part)));
    size_t worst = 0;
    for (size_t i = 1; i < row.values.size(); ++i)
      if (row.values[i] > row.values[worst]) worst = i;
    table.cell(std::to_string(worst));
  }
  return table.finish();
}

constexpr size_t kMostTexts = 50, kMostTokens = 2000, kMostRows = 500;

/// How much darker a token is drawn: 0 to 4, a power of ten each from 0.001 nats.
int shade_of(double kl) {
  if (!(kl >= 1e-3)) return 0;
  return std::min(4, static_cast<int>(std::floor(std::log10(kl))) + 4);
}

/// A token; `differs` where it is the first that is not the other text's.
void add_token(Markup& out, const std::string& token, double kl, bool differs) {
  const std::string css_class = "token shade" + std::to_string(shade_of(kl));
  if (differs) out.open("mark").element("span", {{"class", "hidden"}}, "first difference: ");
  if (std::isnan(kl))
    out.text(token);
  else
    out.element("span", {{"class", css_class}, {"title", "KL " + number_text(kl, 3)}}, token);
  if (differs) out.close("mark");
}

void add_text(Markup& out, const GeneratedText& text, const std::string& note,
              std::optional<int64_t> divergence) {
  out.open("div", {{"class", "text"}}).open("h4").text(text.name);
  if (!note.empty()) out.element("span", {{"class", "note"}}, " " + note);
  out.close("h4").open("p", {{"class", "tokens"}});
  if (text.tokens.empty()) out.text(text.text);
  const size_t count = std::min(text.tokens.size(), kMostTokens);
  for (size_t i = 0; i < count; ++i)
    add_token(out, text.tokens[i], i < text.kl.size() ? text.kl[i] : std::nan(""),
              divergence && static_cast<size_t>(*divergence) == i);
  if (count < text.tokens.size()) out.text("…");
  out.close("p").close("div");
}

std::string divergence_note(const GeneratedText& variant) {
  if (!variant.first_divergence) return "the same as the reference";
  return "differs from token " + std::to_string(*variant.first_divergence) + " on";
}

std::string quoted(const std::vector<std::string>& tokens, size_t i) {
  return i < tokens.size() ? "“" + tokens[i] + "”" : "–";
}

/// The numbers behind the shades.
Markup token_table(const ComparedTexts& texts, size_t index) {
  std::vector<Column> columns{{"token"}, {texts.reference.name}};
  size_t rows = texts.reference.tokens.size();
  for (const GeneratedText& variant : texts.variants) {
    columns.push_back({variant.name});
    columns.push_back({"KL of " + variant.name});
    rows = std::max(rows, variant.tokens.size());
  }
  if (rows == 0) return {};
  TableMarkup table(
      {.id = "tokens-" + std::to_string(index), .caption = "Tokens and their KL", .has_text = true},
      columns);
  for (size_t i = 0; i < std::min(rows, kMostRows); ++i) {
    table.row(std::to_string(i)).cell(quoted(texts.reference.tokens, i));
    for (const GeneratedText& variant : texts.variants) {
      table.cell(quoted(variant.tokens, i));
      table.cell(i < variant.kl.size() ? number_text(variant.kl[i], 3) : std::string("–"));
    }
  }
  return folded("Token by token", table.finish());
}

Markup compared(const ComparedTexts& texts, size_t index) {
  Markup out;
  out.open("div", {{"class", "compared"}});
  out.element("h3", "Prompt " + std::to_string(index + 1));
  out.element("p", {{"class", "prompt tokens"}}, texts.prompt);
  std::optional<int64_t> first;
  for (const GeneratedText& variant : texts.variants)
    if (variant.first_divergence)
      first = std::min(first.value_or(*variant.first_divergence), *variant.first_divergence);
  out.open("div", {{"class", "texts"}});
  add_text(out, texts.reference, "reference", first);
  for (const GeneratedText& variant : texts.variants)
    add_text(out, variant, divergence_note(variant), variant.first_divergence);
  return out.close("div").append(token_table(texts, index)).close("div");
}

Markup shade_legend() {
  constexpr const char* kWords[] = {"below 0.001 nats", "0.001", "0.01", "0.1", "1 and more"};
  Markup list;
  list.open("ul", {{"class", "legend"}});
  for (int shade = 0; shade < 5; ++shade) {
    list.open("li").element("span", {{"class", "token shade" + std::to_string(shade)}}, "token");
    list.text(std::string(" KL ") + kWords[shade]).close("li");
  }
  return list.close("ul");
}

}  // namespace

Section kl_layers_section(const EvalReport& report) {
  Section section{"layers", "What each layer costs"};
  const SeriesChart chart = kl_by_layer_chart(report);
  if (chart.places.empty()) return section;
  section.body = charted(chart,
                         "KL when the cache of one layer alone is quantized and all others keep "
                         "their precision. Layers' KL do not add up.",
                         "layers-table");
  Markup list;
  for (const EvalVariant& variant : report.variants)
    if (!variant.layers.empty())
      list.element("li", variant.cache.name + ": the dearest layers are " + dearest_words(variant));
  section.body.open("ul").append(list).close("ul");
  return section;
}

Section positions_section(const EvalReport& report) {
  Section section{"positions", "By position in the sequence"};
  const SeriesChart kl = kl_by_position_chart(report), nll = nll_by_position_chart(report);
  if (kl.places.empty()) return section;
  section.body = charted(kl,
                         "KL of the tokens at these positions. Errors of a quantized cache add up "
                         "where it grows with the position.",
                         "kl-positions-table");
  section.body.append(charted(
      nll, "Negative log likelihood of the same tokens: how much the model knows of what comes.",
      "nll-positions-table"));
  return section;
}

Section sequences_section(const EvalReport& report) {
  Section section{"sequences", "Sequence by sequence"};
  const SpreadChart chart = sequences_chart(report);
  section.body =
      figure(draw_spread(chart),
             {.caption = "Each sequence's own mean: a mean over all may hide a few that suffer.",
              .numbers = sequences_table(chart)});
  return section;
}

Section sensitivity_section(const EvalReport& report) {
  Section section{"sensitivity", "Layers to keep in 16 bits"};
  if (!report.sensitivity) return section;
  const Sensitivity& sensitivity = *report.sensitivity;
  TableMarkup table(
      {.id = "sensitivity-table", .caption = "Choices that were measured", .is_sortable = true},
      {{"kept layers"},
       {"mean KL"},
       {"perplexity"},
       {"cache of one token"},
       {.title = "proposed", .kind = Column::Kind::kWord},
       {.title = "which", .kind = Column::Kind::kWord}});
  for (const MixedCacheRow& row : sensitivity.rows) {
    const auto bytes = static_cast<double>(row.bytes_per_token);
    table.row(std::to_string(row.kept.size()))
        .cell(number_text(row.result.kl_mean.value_or(std::nan("")), 5))
        .cell(number_text(row.result.perplexity, 5))
        .cell(byte_text(bytes), bytes)
        .word(row.is_proposed ? "yes" : "")
        .word(join(row.kept, " ", as_text));
  }
  const Markup numbers = table.finish();
  section.body = figure(
      draw_scatter(sensitivity_chart(sensitivity)),
      {.caption = "Layers are kept in the order of what they cost alone. The ring is the proposal: "
                  "the smallest cache within the budget.",
       .numbers = numbers});
  if (section.body.empty()) section.body = numbers;
  const UnquantizedLayers proposal = sensitivity.proposal.value_or(UnquantizedLayers());
  if (!proposal.skip_layers_argument.empty())
    section.body.open("p")
        .text("vLLM leaves these layers in 16 bits with ")
        .element("code", proposal.skip_layers_argument)
        .text(".")
        .close("p");
  if (!proposal.recipe.empty())
    section.body.append(folded("As a recipe", Markup().element("pre", proposal.recipe)));
  section.body.append(charted(ranking_chart(sensitivity),
                              "KL when the cache of that layer alone is quantized.",
                              "ranking-table"));
  return section;
}

Section texts_section(const EvalReport& report) {
  Section section{"texts", "Texts side by side"};
  if (report.texts.empty()) return section;
  section.body.append(
      words("What each variant writes after the same prompt, greedily. The first token that is not "
            "the reference's is marked; from there on the texts go their own ways."));
  const auto has_kl = [](const ComparedTexts& texts) {
    return std::ranges::any_of(texts.variants,
                               [](const GeneratedText& variant) { return !variant.kl.empty(); });
  };
  if (std::ranges::any_of(report.texts, has_kl)) section.body.append(shade_legend());
  for (size_t i = 0; i < std::min(report.texts.size(), kMostTexts); ++i)
    section.body.append(compared(report.texts[i], i));
  if (report.texts.size() > kMostTexts)
    section.body.append(
        words(std::to_string(report.texts.size() - kMostTexts) + " more are not shown."));
  return section;
}

Section questions_section(const EvalReport& report) {
  Section section{"questions", "Questions and answers"};
  std::vector<Column> columns{{"question"},
                              {"target"},
                              {"strict"},
                              {"flexible"},
                              {.title = "strict is", .kind = Column::Kind::kChoice},
                              {.title = "flexible is", .kind = Column::Kind::kChoice},
                              {"text"}};
  if (!report.is_single) columns.push_back({.title = "variant", .kind = Column::Kind::kChoice});
  TableMarkup table({.id = "questions-table",
                     .caption = "Every question: the answer that is right, those that were found, "
                                "and what was written",
                     .is_sortable = true,
                     .has_text = true},
                    columns);
  const auto verdict = [](bool is_right) { return is_right ? "✓ right" : "✗ wrong"; };
  bool has_answers = false;
  for (const EvalVariant& variant : report.variants) {
    if (!variant.answers) continue;
    for (const GsmAnswer& answer : variant.answers->answers) {
      has_answers = true;
      table.row(std::to_string(answer.doc_id)).cell(answer.target);
      table.cell(answer.strict).cell(answer.flexible);
      table.cell(verdict(answer.is_strict_match)).cell(verdict(answer.is_flexible_match));
      // The question stands last in the prompt, after the examples.
      const size_t examples = answer.prompt.rfind("\n\n");
      Markup text;
      text.element("p", {{"class", "prompt tokens"}},
                   answer.prompt.substr(examples == std::string::npos ? 0 : examples + 2));
      text.element("p", {{"class", "tokens"}}, answer.text);
      table.cell(folded("show", text));
      if (!report.is_single) table.cell(variant.cache.name);
    }
  }
  if (has_answers) section.body.append(table.finish());
  return section;
}

}  // namespace kvcal::report
