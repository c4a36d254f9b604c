#include "export/source_card.h"

#include <algorithm>
#include <optional>

#include "core/file.h"
#include "core/folder.h"
#include "core/utf8.h"
#include "recipe/yaml_tree.h"

namespace kvcal {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

/// Text with line feeds alone, without a byte order mark.
std::string with_line_feeds(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  std::string lines;
  lines.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r')
      lines += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      lines += '\n';
  }
  return lines;
}

std::string without_blank_ends(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t last = text.find_last_not_of(kBlank);
  if (last == text.npos) return {};
  const size_t first = text.find_first_not_of(kBlank);
  const size_t line = text.rfind('\n', first);  // the first line keeps its indentation
  const size_t begin = line == text.npos ? 0 : line + 1;
  return std::string(text.substr(begin, last + 1 - begin));
}

/// Front matter and the text below it.
struct CardParts {
  std::optional<std::string> front;
  std::string below;
};

/// The line that begins at `at`, without blanks at its end.
std::string_view line_at(std::string_view text, size_t at) {
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
  return line;
}

CardParts split_card(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos || line_at(text, first) != "---") return {.front = {}, .below = text};
  const size_t begin = text.find('\n', first);
  for (size_t at = begin; at != text.npos; at = text.find('\n', at + 1)) {
    if (line_at(text, at + 1) != "---") continue;
    const size_t end = text.find('\n', at + 1);
    return {.front = text.substr(begin + 1, std::max(at, begin + 1) - begin - 1),
            .below = end == text.npos ? std::string() : text.substr(end + 1)};
  }
  return {.front = {}, .below = text};
}

/// nullopt: not a text and no list of texts.
std::optional<CardField> field_of(const YamlEntry& entry) {
  CardField field{.key = entry.key.text, .values = {}};
  const YamlNode& value = entry.value;
  field.is_list = value.kind == YamlNode::Kind::kList;
  if (value.kind == YamlNode::Kind::kScalar) field.values.push_back(value.text);
  for (const YamlNode& item : value.items) {
    if (item.kind != YamlNode::Kind::kScalar) return std::nullopt;
    field.values.push_back(item.text);
  }
  if (field.values.empty()) return std::nullopt;
  return field;
}

/// False: front is no map of YAML.
bool read_fields(const std::string& front, std::vector<CardField>& fields) {
  try {
    const YamlNode root = parse_yaml(front, {.max_bytes = kMaxBytes, .what = "model card"});
    if (root.kind == YamlNode::Kind::kNull) return true;
    if (root.kind != YamlNode::Kind::kMap) return false;
    for (const YamlEntry& entry : root.entries)
      if (auto field = field_of(entry)) fields.push_back(*std::move(field));
    return true;
  } catch (const Error&) {
    return false;  // a card says nothing that an engine reads
  }
}

/// The end of the part that kvcal wrote in the text below the front matter; 0: there is none.
size_t end_of_ours(const std::string& text) {
  if (!without_blank_ends(text).starts_with(kCardBegin)) return 0;
  const size_t end = text.find(kCardEnd);
  return end == text.npos ? 0 : end + kCardEnd.size();
}

}  // namespace

const CardField* SourceCard::find(std::string_view key) const {
  const auto found = std::ranges::find(fields, key, &CardField::key);
  return found == fields.end() ? nullptr : &*found;
}

SourceCard parse_source_card(std::string_view text) {
  CardParts parts = split_card(with_line_feeds(text));
  SourceCard card;
  if (parts.front && !read_fields(*parts.front, card.fields))
    card.unread = without_blank_ends(*parts.front);
  const size_t ours = end_of_ours(parts.below);
  card.is_ours = ours > 0;
  card.text = without_blank_ends(parts.below.substr(ours));
  return card;
}

bool is_readable_card(const std::filesystem::path& folder) {
  const MappedFile file(folder / kCardName);
  const auto bytes = file.bytes();
  return bytes.size() <= kMaxBytes &&
         utf8::is_valid({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

SourceCard read_source_card(const std::filesystem::path& folder) {
  if (!is_there(folder / kCardName) || !is_readable_card(folder)) return {};
  return parse_source_card(read_text(folder / kCardName));
}

}  // namespace kvcal
