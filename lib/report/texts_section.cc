#include <algorithm>
#include <cmath>

#include "report/eval_sections.h"
#include "report/figure.h"
#include "report/numbers.h"

namespace kvcal::report {
namespace {

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

bool has_kl(const EvalReport& report) {
  for (const ComparedTexts& texts : report.texts)
    for (const GeneratedText& variant : texts.variants)
      if (!variant.kl.empty()) return true;
  return false;
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

Section texts_section(const EvalReport& report) {
  Section section{"texts", "Texts side by side"};
  if (report.texts.empty()) return section;
  section.body.append(
      words("What each variant writes after the same prompt, greedily. The first token that is not "
            "the reference's is marked; from there on the texts go their own ways."));
  if (has_kl(report)) section.body.append(shade_legend());
  for (size_t i = 0; i < std::min(report.texts.size(), kMostTexts); ++i)
    section.body.append(compared(report.texts[i], i));
  if (report.texts.size() > kMostTexts)
    section.body.append(
        words(std::to_string(report.texts.size() - kMostTexts) + " more are not shown."));
  return section;
}

Section questions_section(const EvalReport& report) {
  Section section{"questions", "Questions and answers"};
  if (report.questions.empty()) return section;
  const bool has_variants = std::ranges::any_of(
      report.questions, [](const AnsweredQuestion& question) { return !question.variant.empty(); });
  std::vector<Column> columns{{"question"},
                              {"target"},
                              {"strict"},
                              {"flexible"},
                              {.title = "strict is", .kind = Column::Kind::kChoice},
                              {.title = "flexible is", .kind = Column::Kind::kChoice},
                              {"text"}};
  if (has_variants) columns.push_back({.title = "variant", .kind = Column::Kind::kChoice});
  TableMarkup table({.id = "questions-table",
                     .caption = "Every question: the answer that is right, those that were found, "
                                "and what was written",
                     .is_sortable = true,
                     .has_text = true},
                    columns);
  const auto verdict = [](bool is_right) { return is_right ? "✓ right" : "✗ wrong"; };
  for (const AnsweredQuestion& question : report.questions) {
    table.row(std::to_string(question.index)).cell(question.target);
    table.cell(question.strict).cell(question.flexible);
    table.cell(verdict(question.is_strict_right)).cell(verdict(question.is_flexible_right));
    Markup text;
    text.element("p", {{"class", "prompt tokens"}}, question.question);
    text.element("p", {{"class", "tokens"}}, question.text);
    table.cell(folded("show", text));
    if (has_variants) table.cell(question.variant);
  }
  section.body.append(table.finish());
  return section;
}

}  // namespace kvcal::report
