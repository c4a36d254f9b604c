#include "recipe/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "core/text.h"
#include "core/utf8.h"

namespace kvcal {
namespace {

/// YAML's own limit for keys without "?".
constexpr size_t kMaxKeyBytes = 1024;

RecipePlace place_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

/// Throws Error for invalid UTF-8, which yaml-cpp would replace silently, and for too many open
/// brackets: yaml-cpp looks ahead for a key in each, which takes memory.
void check_characters(std::string_view text, const YamlLimits& limits) {
  constexpr int kMostOpen = 1000;
  RecipePlace place{1, 1};
  int open = 0;
  for (size_t at = 0; at < text.size();) {
    const unsigned char c = static_cast<unsigned char>(text[at]);
    const size_t length = utf8::well_formed_size(text, at);
    if (length == 0) fail(text_of(place), "not UTF-8 text");
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f)
      fail(text_of(place), "control character ", static_cast<int>(c), " in the text");
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (open > kMostOpen) fail(text_of(place), "nested deeper than ", limits.max_depth, " levels");
    at += length;
    place = c == '\n' ? RecipePlace{place.line + 1, 1} : RecipePlace{place.line, place.column + 1};
  }
}

/// Hint at a tab in the indentation, which yaml-cpp does not give.
std::string_view tab_hint(std::string_view text, int line) {
  for (int i = 0; i < line && !text.empty(); ++i)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const std::string_view indentation = text.substr(0, text.find_first_not_of(" \t"));
  if (indentation.find('\t') == std::string_view::npos) return "";
  return " (the line is indented with a tab, expected spaces)";
}

/// Builds the tree from yaml-cpp's events, which come before any expansion, so an alias bomb is
/// refused at its place.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlLimits& limits) : limits_(limits) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(YamlNode::Kind::kNull, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = make(YamlNode::Kind::kScalar, mark, tag, anchor);
    node.text = value;
    node.is_quoted = tag == "!";
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::kList, mark, tag, anchor));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::kMap, mark, tag, anchor));
  }
  void OnMapEnd() override { close(); }

 private:
  /// A list or map under construction, and for a map the key whose value is next.
  struct Level {
    YamlNode node;
    YamlNode key;
    bool has_key = false;
    std::unordered_set<std::string> keys;
  };

  void refuse_anchor(const YAML::Mark& mark) const {
    fail(text_of(place_of(mark)), "anchors and aliases (& and *) are not taken in a ", limits_.what,
         "; write the value out, and put quotes around a pattern that begins with one");
  }
  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor) {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    if (anchor != YAML::NullAnchor) refuse_anchor(mark);
    if (!tag.empty() && tag != "?" && tag != "!")
      fail_at(node, "tag ", tag, " is not taken in a ", limits_.what, "; leave it away");
    if (++num_nodes_ > limits_.max_nodes)
      fail_at(node, "more than ", limits_.max_nodes, " values in one ", limits_.what);
    return node;
  }
  void open(YamlNode node) {
    const bool is_map = node.kind == YamlNode::Kind::kMap;
    const Level* parent = levels_.empty() ? nullptr : &levels_.back();
    if (parent != nullptr && parent->node.kind == YamlNode::Kind::kMap && !parent->has_key)
      fail_at(node, "found a ", is_map ? "map" : "list", " as a key, expected text");
    if (levels_.size() >= limits_.max_depth)
      fail_at(node, "nested deeper than ", limits_.max_depth, " levels");
    levels_.push_back({std::move(node), {}, false, {}});
  }
  void close() {
    YamlNode done = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(done));
  }
  void add(YamlNode node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == YamlNode::Kind::kList) {
      level.node.items.push_back(std::move(node));
    } else if (!level.has_key) {
      check_key(level, node);
      level.keys.insert(node.text);
      level.key = std::move(node);
      level.has_key = true;
    } else {
      // An absent value has the place of the next token; its key is the useful place.
      if (node.kind == YamlNode::Kind::kNull) node.place = level.key.place;
      level.node.entries.push_back({std::move(level.key), std::move(node)});
      level.has_key = false;
    }
  }
  void check_key(const Level& level, const YamlNode& key) const {
    if (key.kind != YamlNode::Kind::kScalar)
      fail_at(key, "found ", describe(key), " as a key, expected text");
    if (key.text == "<<" && !key.is_quoted)
      fail_at(key, "merge keys (<<) are not taken in a ", limits_.what, "; write the values out");
    if (key.text.size() > kMaxKeyBytes)
      fail_at(key, "a key of ", key.text.size(), " bytes, expected at most ", kMaxKeyBytes);
    if (!level.keys.contains(key.text)) return;
    for (const YamlEntry& entry : level.node.entries)
      if (entry.key.text == key.text)
        fail_at(key, "key '", key.text, "' appears twice in one map; the first is on line ",
                entry.key.place.line);
  }

  const YamlLimits& limits_;
  YamlNode root_;
  std::vector<Level> levels_;
  size_t num_nodes_ = 0;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries)
    if (entry.key.text == key) return &entry.value;
  return nullptr;
}

YamlNode parse_yaml(std::string_view text, const YamlLimits& limits) {
  if (text.size() > limits.max_bytes)
    fail("found ", text.size(), " bytes, expected a ", limits.what, " of at most ",
         limits.max_bytes);
  check_characters(text, limits);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(limits);
    parser.HandleNextDocument(builder);
    TreeBuilder second(limits);
    if (parser.HandleNextDocument(second))
      fail("more than one YAML document (---) in one ", limits.what);
    return builder.take();
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) fail("not valid YAML: ", error.msg);
    fail(text_of(place_of(error.mark)), "not valid YAML: ", error.msg,
         tab_hint(text, error.mark.line));
  }
}

std::string text_of(const RecipePlace& place) {
  return "line " + std::to_string(place.line) + ", column " + std::to_string(place.column) + ": ";
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kList:
      return node.items.empty() ? "an empty list" : "a list";
    case YamlNode::Kind::kMap:
      return node.entries.empty() ? "an empty map" : "a map";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string shown = node.text.size() <= 80 ? node.text : node.text.substr(0, 80) + "...";
  if (shown.find("{{") != std::string::npos)
    return "'" + shown + "' (templates are not evaluated: write the value)";
  return node.is_quoted ? "the string \"" + shown + "\"" : "'" + shown + "'";
}

namespace {

constexpr size_t kWidth = 88;

/// PyYAML reads a number with an exponent as a string unless it has a point and a sign.
std::string yaml_number(const Json& number) {
  std::string text = number.dump();
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}

/// Flow style under construction.
class FlowText {
 public:
  explicit FlowText(size_t column) : column_(column) {}
  std::string take() { return std::move(text_); }

  void write(const Json& value, size_t indent) {
    if (value.is_object() || value.is_array()) return write_collection(value, indent);
    if (value.is_string()) return put(yaml_string(value.get<std::string>()));
    put(value.is_number() ? yaml_number(value)
                          : value.dump());  // null, true, false: the same words
  }

 private:
  void put(std::string_view text) {
    text_ += text;
    column_ += utf8::length(text);
  }
  void write_collection(const Json& value, size_t indent) {
    put(value.is_object() ? "{" : "[");
    bool is_first = true;
    for (const auto& [key, item] : value.items()) {
      if (!is_first) put(",");
      if (column_ > kWidth) {
        text_ += "\n" + std::string(indent, ' ');
        column_ = indent;
      } else if (!is_first) {
        put(" ");
      }
      is_first = false;
      if (value.is_object()) put(yaml_string(key) + ": ");
      write(item, indent + 2);
    }
    put(value.is_object() ? "}" : "]");
  }

  std::string text_;
  size_t column_;
};

}  // namespace

std::string yaml_string(std::string_view text) {
  constexpr std::array<std::string_view, 10> kWords{"true", "false", "yes", "no", "on",
                                                    "off",  "null",  "y",   "n",  "~"};
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' ||
           c == '/';
  };
  const std::string lower = ascii_lower(std::string(text));
  const bool starts_plain = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0]));
  if (starts_plain && std::all_of(text.begin(), text.end(), is_plain) &&
      std::find(kWords.begin(), kWords.end(), lower) == kWords.end())
    return std::string(text);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) return Json(text).dump(-1, ' ', true);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

namespace {

void append_entries(const Json& map, size_t indent, std::string& text) {
  for (const auto& [key, value] : map.items()) {
    const std::string start = std::string(indent, ' ') + yaml_string(key) + ":";
    const bool is_block = value.is_object() && std::ranges::any_of(value, [](const Json& one) {
                            return one.is_structured();
                          });
    if (is_block) {
      text += start + "\n";
      append_entries(value, indent + 2, text);
    } else {
      FlowText flow(start.size() + 1);
      flow.write(value, indent + 2);
      text += start + " " + flow.take() + "\n";
    }
  }
}

}  // namespace

std::string yaml_text(const Json& map) {
  std::string text;
  append_entries(map, 0, text);
  return text;
}

}  // namespace kvcal
