#include "datasets/descriptor.h"

#include <algorithm>
#include <array>
#include <utility>

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/registry.h"
#include "core/text.h"
#include "datasets/dataset_reader.h"
#include "datasets/named_dataset.h"
#include "hub/hub.h"

namespace kvcal {

std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path) {
  if (path.has_parent_path()) return std::nullopt;
  for (const EmbeddedText& file : builtin_datasets())
    if (file.stem() == path.native() && !is_there(path)) return file;
  return std::nullopt;
}

std::optional<EmbeddedText> named_dataset(const std::filesystem::path& path,
                                          std::string_view extension) {
  const auto named = named_dataset(path);
  return named && named->name.ends_with(extension) ? named : std::nullopt;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const EmbeddedText& file : builtin_datasets()) names.emplace_back(file.stem());
  return names;
}

std::filesystem::path dataset_seen_from(const std::filesystem::path& folder,
                                        const std::string& given) {
  const std::filesystem::path path = shortened(folder / given);
  return !is_there(path) && named_dataset(given) ? std::filesystem::path(given) : path;
}

namespace {

constexpr size_t kMaxDescriptorBytes = size_t{64} << 10;

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

/// The items of a list, or the value itself.
std::vector<YAML::Node> items_of(const YAML::Node& node) {
  if (!node.IsSequence()) return {node};
  return {node.begin(), node.end()};
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
      if (std::ranges::count(known, key) == 0)
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
  /// Throws Error that names all of the keys that are not there.
  void require(std::vector<std::string_view> keys) const {
    std::erase_if(keys, [&](std::string_view key) { return optional(key).has_value(); });
    if (keys.empty()) return;
    const std::string names = "'" + join(keys, "', '") + "'";
    fail_at(map_, keys.size() == 1 ? "key " : "keys ", names,
            keys.size() == 1 ? " is missing" : " are missing");
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
    std::pair{std::string_view("text"), Kind::kTemplates},
};

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
    if (kind != Kind::kTemplates) {
      mapping.field = scalar(*value, key);
      continue;
    }
    for (const YAML::Node& item : items_of(*value)) mapping.parts.push_back(read_template(item));
    if (mapping.parts.empty()) fail_at(*value, "key 'text' is an empty list, expected templates");
  }
  if (found != 1)
    fail_at(node, "key 'record' has ", found,
            " of the keys 'input_ids', 'messages', 'conversations', 'text', expected one");
  if (const auto separator = fields.optional("separator")) {
    if (mapping.kind != Kind::kTemplates || !separator->IsScalar())
      fail_at(*separator, "key 'separator' is a string that goes with 'text'");
    mapping.separator = separator->Scalar();
  }
  return mapping;
}

constexpr std::string_view kSplit = "{split}";

/// The path key with {split} filled in, seen from the descriptor's folder.
fs::path local_copy_of(const YAML::Node& node, const fs::path& descriptor, const std::string& split,
                       bool is_split_chosen) {
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
  std::vector<std::string> files;
  for (const YAML::Node& one : items_of(node)) {
    std::string& pattern = files.emplace_back(scalar(one, "hub"));
    if (const size_t at = pattern.find(kSplit); at != pattern.npos)
      pattern.replace(at, kSplit.size(), split);
  }
  return files;
}

/// Whether a text of the value, one or a list, asks for the split.
bool names_split(const std::optional<YAML::Node>& value) {
  return value && std::ranges::any_of(items_of(*value), [](const YAML::Node& one) {
           return one.IsScalar() && one.Scalar().find(kSplit) != std::string::npos;
         });
}

/// Throws Error for the keys that this use of the descriptor needs and that are not there.
void check_is_whole(const Fields& fields, const DatasetOverrides& overrides) {
  std::vector<std::string_view> needed;
  if (!overrides.local_copy) needed.emplace_back("path");
  const bool asks_for_split =
      names_split(fields.optional("path")) || names_split(fields.optional("hub"));
  if (asks_for_split && !overrides.split) needed.emplace_back("split");
  if (fields.optional("hub")) needed.emplace_back("source");
  if (overrides.records.columns.is_empty()) needed.emplace_back("record");
  fields.require(needed);
}

void read_origin(const Fields& fields, DatasetDescriptor& result) {
  if (const auto node = fields.optional("name")) result.name = scalar(*node, "name");
  if (const auto node = fields.optional("source")) result.source = plain_name(*node, "source");
  if (const auto node = fields.optional("licence")) result.licence = scalar(*node, "licence");
  if (const auto node = fields.optional("configuration"))
    result.configuration = plain_name(*node, "configuration");
}

/// Reads splits, and the one to read.
void read_split(const Fields& fields, const DatasetOverrides& overrides,
                DatasetDescriptor& result) {
  const auto splits = fields.optional("splits"), split = fields.optional("split");
  if (split) result.split = plain_name(*split, "split");
  if (overrides.split) result.split = *overrides.split;
  if (!splits) return;
  result.splits = read_splits(*splits);
  if (result.split.empty() || std::ranges::count(result.splits, result.split) > 0) return;
  fail_at(split ? *split : *splits, "unknown split '", result.split, "'",
          did_you_mean(result.split, result.splits));
}

DatasetDescriptor parse_descriptor(const std::string& text, const fs::path& path,
                                   const DatasetOverrides& overrides) {
  const YAML::Node root = YAML::Load(text);
  if (root.IsNull()) fail("the descriptor is empty");
  const Fields fields(
      root, "the descriptor",
      {"name", "source", "licence", "configuration", "splits", "split", "path", "hub", "record"});
  check_is_whole(fields, overrides);
  DatasetDescriptor result;
  read_origin(fields, result);
  read_split(fields, overrides, result);
  result.local_copy = overrides.local_copy
                          ? *overrides.local_copy
                          : local_copy_of(*fields.optional("path"), path, result.split,
                                          overrides.split.has_value());
  if (const auto hub = fields.optional("hub"))
    result.hub_files = read_hub_files(*hub, result.split);
  if (const auto record = fields.optional("record")) result.mapping = read_mapping(*record);
  if (!overrides.records.columns.is_empty()) result.mapping = mapping_of(overrides.records.columns);
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

}  // namespace

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

}  // namespace kvcal
