#include "datasets/descriptor.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/registry.h"
#include "datasets/named_dataset.h"
#include "datasets/record_source.h"
#include "hub/hub.h"

namespace kvcal {
namespace {

constexpr size_t kMaxDescriptorBytes = size_t{64} << 10;
constexpr size_t kMaxFieldBytes = 200;

template <class... Parts>
[[noreturn]] void fail_at(const YAML::Node& node, const Parts&... parts) {
  fail("line ", node.Mark().line + 1, ": ", parts...);
}

std::string_view kind_of_node(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "a string";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    default:
      return "nothing";
  }
}

std::string scalar(const YAML::Node& node, std::string_view key) {
  if (!node.IsScalar() || node.Scalar().empty())
    fail_at(node, "key '", key, "' is ", node.IsScalar() ? "an empty string" : kind_of_node(node),
            ", expected a string");
  return node.Scalar();
}

/// A name that may appear in a command we suggest, so nothing a shell would act upon.
std::string plain_name(const YAML::Node& node, std::string_view key) {
  const std::string value = scalar(node, key);
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-/+").find(c) != std::string_view::npos;
  };
  if (!std::all_of(value.begin(), value.end(), is_plain))
    fail_at(node, "key '", key, "' is '", value, "', expected letters, digits and . _ - / + only");
  return value;
}

/// A map's values by key, each key known and there once.
class Fields {
 public:
  Fields(const YAML::Node& map, std::string_view what, const std::vector<std::string>& known)
      : map_(map) {
    if (!map.IsMap()) fail_at(map, what, " is ", kind_of_node(map), ", expected a map of keys");
    for (const auto& item : map) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "";
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail_at(item.first, "unknown key '", key, "'", did_you_mean(key, known));
      if (optional(key)) fail_at(item.first, "key '", key, "' appears twice");
      entries_.emplace_back(key, item.second);
    }
  }
  std::optional<YAML::Node> optional(std::string_view key) const {
    for (const auto& [name, value] : entries_)
      if (name == key) return value;
    return std::nullopt;
  }
  YAML::Node required(std::string_view key) const {
    if (auto value = optional(key)) return *value;
    fail_at(map_, "key '", key, "' is missing");
  }

 private:
  YAML::Node map_;
  std::vector<std::pair<std::string, YAML::Node>> entries_;
};

std::vector<std::string> read_splits(const YAML::Node& node) {
  if (!node.IsSequence() || node.size() == 0)
    fail_at(node, "key 'splits' is ", node.IsSequence() ? "an empty list" : kind_of_node(node),
            ", expected a list of names");
  std::vector<std::string> splits;
  for (const YAML::Node& item : node) splits.push_back(plain_name(item, "splits"));
  return splits;
}

FieldTemplate read_template(const YAML::Node& node) {
  const std::string source = scalar(node, "text");
  return in_context("line " + std::to_string(node.Mark().line + 1),
                    [&] { return FieldTemplate(source); });
}

using Kind = RecordMapping::Kind;
constexpr std::array kKinds{
    std::pair{std::string_view("input_ids"), Kind::kInputIds},
    std::pair{std::string_view("messages"), Kind::kMessages},
    std::pair{std::string_view("conversations"), Kind::kConversations},
    std::pair{std::string_view("text"), Kind::kText},
};

void read_text_parts(const YAML::Node& node, RecordMapping& mapping) {
  if (!node.IsSequence()) {
    mapping.parts.push_back(read_template(node));
    return;
  }
  if (node.size() == 0) fail_at(node, "key 'text' is an empty list, expected templates");
  for (const YAML::Node& item : node) mapping.parts.push_back(read_template(item));
}

RecordMapping read_mapping(const YAML::Node& node) {
  const Fields fields(node, "key 'record'",
                      {"input_ids", "messages", "conversations", "text", "separator"});
  RecordMapping mapping;
  int found = 0;
  for (const auto& [key, kind] : kKinds) {
    const auto value = fields.optional(key);
    if (!value) continue;
    ++found;
    mapping.kind = kind;
    if (kind == Kind::kText)
      read_text_parts(*value, mapping);
    else
      mapping.field = scalar(*value, key);
  }
  if (found != 1)
    fail_at(node, "key 'record' has ", found,
            " of the keys 'input_ids', 'messages', 'conversations', 'text', expected one");
  if (const auto separator = fields.optional("separator")) {
    if (mapping.kind != Kind::kText || !separator->IsScalar())
      fail_at(*separator, "key 'separator' is a string that goes with 'text'");
    mapping.separator = separator->Scalar();
  }
  return mapping;
}

/// The path key with {split} filled in, seen from the descriptor's folder.
fs::path local_copy_of(const YAML::Node& node, const fs::path& descriptor, const std::string& split,
                       bool is_split_chosen) {
  constexpr std::string_view kSplit = "{split}";
  std::string value = scalar(node, "path");
  const size_t at = value.find(kSplit);
  if (at == std::string::npos && is_split_chosen)
    fail_at(node, "key 'path' is '", value, "' without {split}, so split '", split,
            "' cannot be chosen");
  if (at != std::string::npos) value.replace(at, kSplit.size(), split);
  if (value.find_first_of("{}") != std::string::npos)
    fail_at(node, "key 'path' holds a brace, only one {split} is filled in");
  return descriptor.parent_path() / value;
}

/// Patterns of the hub's files, one or a list, with {split} filled in.
std::vector<std::string> read_hub_files(const YAML::Node& node, const std::string& split) {
  constexpr std::string_view kSplit = "{split}";
  std::vector<std::string> files;
  const auto add = [&](const YAML::Node& one) {
    std::string pattern = scalar(one, "hub");
    if (const size_t at = pattern.find(kSplit); at != pattern.npos)
      pattern.replace(at, kSplit.size(), split);
    files.push_back(std::move(pattern));
  };
  if (!node.IsSequence())
    add(node);
  else
    for (const YAML::Node& one : node) add(one);
  return files;
}

DatasetDescriptor parse_descriptor(const std::string& text, const fs::path& path,
                                   const DatasetOverrides& overrides) {
  const YAML::Node root = YAML::Load(text);
  if (root.IsNull()) fail("the descriptor is empty");
  const Fields fields(
      root, "the descriptor",
      {"name", "source", "licence", "configuration", "splits", "split", "path", "hub", "record"});
  DatasetDescriptor result;
  result.name = scalar(fields.required("name"), "name");
  result.source = plain_name(fields.required("source"), "source");
  result.licence = scalar(fields.required("licence"), "licence");
  if (const auto node = fields.optional("configuration"))
    result.configuration = plain_name(*node, "configuration");
  result.splits = read_splits(fields.required("splits"));
  const YAML::Node split = fields.required("split");
  result.split = overrides.split.value_or(plain_name(split, "split"));
  if (std::find(result.splits.begin(), result.splits.end(), result.split) == result.splits.end())
    fail_at(split, "unknown split '", result.split, "'", did_you_mean(result.split, result.splits));
  const YAML::Node copy = fields.required("path");
  result.local_copy = overrides.local_copy
                          ? *overrides.local_copy
                          : local_copy_of(copy, path, result.split, overrides.split.has_value());
  if (const auto hub = fields.optional("hub"))
    result.hub_files = read_hub_files(*hub, result.split);
  result.mapping = read_mapping(fields.required("record"));
  return result;
}

/// The copy of the hub's cache in place of one that does not lie in the working folder.
void use_hub_copy(DatasetDescriptor& descriptor) {
  if (descriptor.hub_files.empty() || is_there(descriptor.local_copy)) return;
  const auto cached = cached_dataset(
      HubCache(hub_settings().cache),
      {.repo = HubRepo::kDataset, .name = descriptor.source, .path = descriptor.hub_files.front()});
  if (cached) descriptor.local_copy = *cached;
}

const Json& field_of(const Json& object, const std::string& field) {
  if (const Json* value = find_field(object, field)) return *value;
  fail_absent(object, field);
}

}  // namespace

FieldTemplate::FieldTemplate(std::string_view source) {
  std::string literal;
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c != '{' && c != '}') {
      literal += c;
      continue;
    }
    if (source.substr(i + 1).starts_with(c)) {
      literal += c;
      ++i;
      continue;
    }
    const size_t end = source.find_first_of("{}", i + 1);
    if (c == '}' || end == std::string_view::npos || source[end] == '{')
      fail("template '", source, "' has a '", c, "' without its partner; write '", c, c,
           "' for the character itself");
    if (end == i + 1 || end - i > kMaxFieldBytes)
      fail("template '", source, "' has a {field} without a name");
    pieces_.push_back({std::exchange(literal, ""), std::string(source.substr(i + 1, end - i - 1))});
    i = end;
  }
  if (pieces_.empty()) fail("template '", source, "' names no {field} of the record");
  pieces_.push_back({literal, ""});
}

std::optional<std::string> FieldTemplate::fill(const Json& object) const {
  std::string text;
  bool has_content = false;
  for (const Piece& piece : pieces_) {
    text += piece.literal;
    if (piece.field.empty()) continue;
    if (!object.contains(piece.field)) fail_absent(object, piece.field);
    const auto value = optional_string(object, piece.field);
    has_content = has_content || (value && !value->empty());
    text += value.value_or("");
  }
  if (!has_content) return std::nullopt;
  return text;
}

std::vector<std::string> FieldTemplate::fields() const {
  std::vector<std::string> names;
  for (const Piece& piece : pieces_)
    if (!piece.field.empty()) names.push_back(piece.field);
  return names;
}

DatasetDescriptor read_descriptor(const fs::path& path, const DatasetOverrides& overrides) {
  const auto named = named_dataset(path, ".yaml");
  const std::string text = named ? std::string(named->text) : read_text(path, kMaxDescriptorBytes);
  return in_context(path.string(), [&] {
    try {
      DatasetDescriptor descriptor = parse_descriptor(text, path, overrides);
      if (named && !overrides.local_copy) use_hub_copy(descriptor);
      return descriptor;
    } catch (const YAML::DeepRecursion& error) {
      fail("line ", error.mark.line + 1, ": YAML nests too deep");
    } catch (const YAML::Exception& error) {
      fail("line ", error.mark.line + 1, ": not valid YAML: ", error.msg);
    }
  });
}

std::vector<std::string> fields_of(const RecordMapping& mapping) {
  if (mapping.kind != RecordMapping::Kind::kText) return {mapping.field};
  std::vector<std::string> names;
  for (const FieldTemplate& part : mapping.parts)
    for (std::string& name : part.fields()) names.push_back(std::move(name));
  return names;
}

Record map_record(const RecordMapping& mapping, const Json& object, std::string place) {
  if (!object.is_object()) fail("a record is ", kind_of(object), ", expected an object");
  const std::string& field = mapping.field;
  switch (mapping.kind) {
    case Kind::kInputIds:
      return {to_ids(field_of(object, field), field), std::move(place)};
    case Kind::kMessages:
      return {to_messages(field_of(object, field), field), std::move(place)};
    case Kind::kConversations:
      return {turns_to_messages(field_of(object, field), field), std::move(place)};
    case Kind::kText:
      break;
  }
  std::string all;
  bool is_first = true;
  for (const FieldTemplate& part : mapping.parts) {
    const auto text = part.fill(object);
    if (!text) continue;
    if (!std::exchange(is_first, false)) all += mapping.separator;
    all += *text;
  }
  return {std::move(all), std::move(place)};
}

}  // namespace kvcal
