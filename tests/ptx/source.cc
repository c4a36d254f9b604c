#include "source.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace kvcal::ptx {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

uint64_t number_of(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{}) fail("PTX: '", digits, "' is no number");
  return value;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = text.find_first_not_of(kBlanks); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

/// 4 of ".f32"; 0 where the word is no type.
uint32_t bytes_of_type(std::string_view word) {
  if (word == ".pred" || word.size() < 3 || std::string_view("busf").find(word[1]) == word.npos)
    return 0;
  const std::string_view bits = word.substr(2);
  for (const std::string_view known : {"8", "16", "32", "64"})
    if (bits == known) return static_cast<uint32_t>(number_of(bits) / 8);
  return 0;
}

bool is_space(std::string_view word) {
  constexpr std::string_view kSpaces[] = {".param", ".shared", ".local", ".global", ".const"};
  return std::ranges::find(kSpaces, word) != std::end(kSpaces);
}

void set_name(Declaration& declaration, std::string_view word) {
  const size_t bracket = word.find('[');
  declaration.name = word.substr(0, bracket);
  if (bracket == word.npos) return;
  const std::string_view count = word.substr(bracket + 1, word.find(']') - bracket - 1);
  declaration.count = count.empty() ? 0 : number_of(count);
}

/// The position behind the brace that closes the one at `open`.
size_t end_of_braces(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    if (text.substr(at, 2) == "//") at = std::min(text.find('\n', at), text.size() - 1);
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  fail("PTX: the text ends inside braces");
}

/// The entry whose ".entry" is at `at`; moves at behind it.
Entry parse_entry(std::string_view text, size_t& at) {
  const size_t name = text.find_first_not_of(kBlanks, at + std::string_view(".entry").size());
  const size_t open = text.find_first_of("({", name);
  size_t close = open;
  Entry entry{.name = trimmed(text.substr(name, open - name)),
              .parameters = {},
              .attributes = {},
              .body = {}};
  if (open != text.npos && text[open] == '(') {
    close = std::min(text.find(')', open), text.size() - 1) + 1;
    entry.parameters = text.substr(open + 1, close - open - 2);
  }
  const size_t body = text.find('{', close);
  if (body == text.npos) fail("PTX: the entry ", entry.name, " has no body");
  entry.attributes = text.substr(close, body - close);
  at = end_of_braces(text, body);
  entry.body = text.substr(body + 1, at - body - 2);
  return entry;
}

bool starts_variable(std::string_view line) {
  for (const std::string_view linkage : {".visible ", ".extern ", ".weak "})
    if (line.starts_with(linkage)) line.remove_prefix(linkage.size());
  return line.starts_with(".global ") || line.starts_with(".const ") ||
         line.starts_with(".shared ");
}

/// Adds the variables among the lines between entries.
void add_variables(std::string_view text, std::vector<Declaration>& variables) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (starts_variable(text.substr(at, end - at))) {
      const size_t semicolon = text.find(';', at);
      if (semicolon == text.npos) fail("PTX: the text ends inside a variable");
      variables.push_back(parse_declaration(text.substr(at, semicolon - at)));
      at = semicolon;
    } else {
      at = end + 1;
    }
  }
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  if (trimmed(text).empty()) return pieces;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    pieces.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return pieces;
}

Declaration parse_declaration(std::string_view text) {
  Declaration declaration;
  const size_t equals = text.find('=');
  if (equals != text.npos) declaration.initial = text.substr(equals + 1);
  const std::vector<std::string_view> words = words_of(text.substr(0, equals));
  bool has_alignment = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align" && i + 1 < words.size()) {
      // That of what a pointer names comes behind the type.
      const auto alignment = static_cast<uint32_t>(number_of(words[++i]));
      if (declaration.type.empty()) declaration.alignment = alignment;
      has_alignment = has_alignment || declaration.type.empty();
    } else if (words[i] == ".extern") {
      declaration.is_extern = true;
    } else if (declaration.space.empty() && is_space(words[i])) {
      declaration.space = words[i];
    } else if (const uint32_t bytes = bytes_of_type(words[i]); bytes > 0) {
      declaration.type = words[i];
      declaration.element_bytes = bytes;
    } else if (!words[i].starts_with('.')) {
      set_name(declaration, words[i]);
    }
  }
  if (declaration.space.empty() || declaration.type.empty() || declaration.name.empty())
    fail("PTX: '", text, "' is no declaration that the judge knows");
  if (!has_alignment) declaration.alignment = declaration.element_bytes;
  return declaration;
}

std::vector<Statement> statements_of(const Entry& entry) {
  std::vector<Statement> statements;
  uint32_t line = entry.line;
  size_t begin = 0;
  uint32_t begin_line = line;
  const std::string_view body = entry.body;
  using Kind = Statement::Kind;
  const auto add = [&](Kind kind, size_t end) {
    const std::string_view text = trimmed(body.substr(begin, end - begin));
    const bool is_brace = kind == Kind::kOpen || kind == Kind::kClose;
    if (!text.empty() || is_brace) {
      const bool is_directive = kind == Kind::kInstruction && text.starts_with('.');
      statements.push_back({is_directive ? Kind::kDirective : kind, text, begin_line});
    }
    begin = end + 1;
  };
  for (size_t at = 0; at < body.size(); ++at) {
    const bool is_blank = trimmed(body.substr(begin, at - begin)).empty();
    if (is_blank) begin_line = line;
    if (body.substr(at, 2) == "//") {
      at = std::min(body.find('\n', at), body.size() - 1);
      if (is_blank) begin = at + 1;
    }
    if (body[at] == '\n') ++line;
    if (body[at] == ';') add(Kind::kInstruction, at);
    if (body[at] == '{' && is_blank) add(Kind::kOpen, at);
    if (body[at] == '}' && is_blank) add(Kind::kClose, at);
    // "shared::cta" has colons, too: a label is a single word.
    if (body[at] == ':' && body.substr(at, 2) != "::" && at > begin && body[at - 1] != ':' &&
        words_of(body.substr(begin, at - begin)).size() == 1)
      add(Kind::kLabel, at);
  }
  if (!trimmed(body.substr(std::min(begin, body.size()))).empty())
    fail("PTX: the last statement of ", entry.name, " has no end");
  return statements;
}

ModuleText parse_module(std::string_view text) {
  ModuleText module;
  uint32_t line = 1;
  size_t counted = 0, between = 0;
  for (size_t at = text.find(".entry"); at != text.npos; at = text.find(".entry", at)) {
    const size_t line_begin = text.rfind('\n', at) + 1;
    add_variables(text.substr(between, line_begin - between), module.variables);
    Entry entry = parse_entry(text, at);
    const auto body = static_cast<size_t>(entry.body.data() - text.data());
    line += static_cast<uint32_t>(std::count(text.begin() + static_cast<ptrdiff_t>(counted),
                                             text.begin() + static_cast<ptrdiff_t>(body), '\n'));
    counted = body;
    entry.line = line;
    module.entries.push_back(entry);
    between = at;
  }
  add_variables(text.substr(between), module.variables);
  return module;
}

}  // namespace kvcal::ptx
