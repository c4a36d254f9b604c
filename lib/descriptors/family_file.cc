#include "descriptors/family_file.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/hash.h"
#include "descriptors/descriptor_fields.h"
#include "recipe/fields.h"

namespace kvcal {
namespace {

constexpr YamlLimits kFamilyLimits{.what = "family"};
constexpr std::string_view kNoHook = "none";

/// Runs body with the place and the path of a field before its errors.
template <class Body>
decltype(auto) at_field(const Field& field, Body&& body) {
  return in_context(place_of(field.value) + field.path, std::forward<Body>(body));
}

Field item_of(const Field& list, size_t index) {
  const YamlNode& node = list.value.items[index];
  return {list.path + "[" + std::to_string(index) + "]", node, node};
}

/// A value as JSON. Plain scalars are numbers, booleans or null where JSON has them.
Json json_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kList: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(json_of(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const auto& [key, value] : node.entries) map[key.text] = json_of(value);
      return map;
    }
    case YamlNode::Kind::kScalar:
      break;
  }
  if (node.is_quoted) return node.text;
  const Json value = Json::parse(node.text, nullptr, false);
  return value.is_primitive() && !value.is_string() && !value.is_discarded() ? value
                                                                             : Json(node.text);
}

/// Reads the fields of a file into the records of an Architecture. Borrows texts, which own them.
class DescriptorReader {
 public:
  explicit DescriptorReader(std::deque<std::string>& texts) : texts_(texts) {}

  /// Reads one field of a record by its name; false where it has none.
  template <class Record>
  bool read_named(const Field& field, std::string_view name, Record& record) {
    bool is_known = false;
    visit_fields(record, [&](std::string_view known, auto&& value, std::string_view) {
      if (known != name) return;
      is_known = true;
      read(field, value);
    });
    return is_known;
  }

  template <class Record>
  static std::vector<std::string> names_of(Record& record) {
    std::vector<std::string> names;
    visit_fields(
        record, [&](std::string_view name, auto&&, std::string_view) { names.emplace_back(name); });
    return names;
  }

  std::string_view text_of(const Field& field) {
    if (field.value.kind != YamlNode::Kind::kScalar) fail_found(field, "a text");
    return texts_.emplace_back(field.value.text);
  }

  void read(const Field& field, std::string_view& value) { value = text_of(field); }
  void read(const Field& field, std::string& value) { value = text_of(field); }
  void read(const Field& field, bool& value) { value = read_bool(field); }
  void read(const Field& field, int64_t& value) { value = read_int(field); }

  template <HasWords Value>
  void read(const Field& field, Value& value) {
    value = at_field(field, [&] { return words<Value>().at(text_of(field)); });
  }

  template <IsRecord Record>
  void read(const Field& map, Record& record) {
    check_map(map);
    for (const auto& [key, value] : map.value.entries)
      if (!read_named({map.path + "." + key.text, key, value}, key.text, record))
        fail_unknown_key(map, key, names_of(record));
    visit_fields(record, [&](std::string_view name, auto&&, std::string_view comment) {
      if (comment == kRequired && !map.value.find(name)) fail_field(map, "'", name, "' is missing");
    });
  }

  template <class Item>
  void read(const Field& field, std::vector<Item>& list) {
    if (field.value.kind != YamlNode::Kind::kList) fail_found(field, "a list");
    list.clear();
    for (size_t i = 0; i < field.value.items.size(); ++i) {
      Item item{};
      read(item_of(field, i), item);
      list.push_back(std::move(item));
    }
  }

  void read(const Field& field, JsonObject& json) {
    check_map(field);
    json.text = json_of(field.value).dump();
  }
  void read(const Field& field, JsonValue json) {
    json.text = texts_.emplace_back(json_of(field.value).dump());
  }

  void read(const Field& field, ConditionList list) {
    std::vector<std::string_view> names;
    read(field, names);
    for (size_t i = 0; i < names.size(); ++i) {
      Condition condition{.wanted = list.wanted};
      if (const auto* of_layer = words<bool LayerConfig::*>().find(names[i]))
        condition.layer = *of_layer;
      else
        condition.model =
            at_field(item_of(field, i), [&] { return words<bool ModelConfig::*>().at(names[i]); });
      list.conditions.push_back(condition);
    }
  }

  void read(const Field& field, ResolveHook& hook) {
    const std::string_view name = text_of(field);
    hook = nullptr;
    if (name == kNoHook) return;
    for (const Architecture& family : architectures())
      if (family.name == name) hook = family.resolve;
    if (!hook)
      fail_field(field, "no built-in family '", name, "' has a hook",
                 did_you_mean(name, hook_names()), "; expected ", kNoHook, " or one of ",
                 join(hook_names(), ", "));
  }

 private:
  std::deque<std::string>& texts_;
};

void drop(const Field& field, const std::vector<Role>& roles, Architecture& family) {
  for (size_t i = 0; i < roles.size(); ++i) {
    const auto is_it = [&](const TensorRow& row) { return row.role == roles[i]; };
    if (std::erase_if(family.model_tensors, is_it) + std::erase_if(family.layer_tensors, is_it) ==
        0)
      fail_field(item_of(field, i), "no tensor has the role ", row_of(roles[i]).name);
  }
}

/// New beginnings of names: the longest old one that fits counts.
class Renaming {
 public:
  Renaming(const Field& field, std::deque<std::string>& texts) : field_(field), texts_(texts) {
    check_map(field);
    for (const auto& [from, to] : field.value.entries) {
      if (to.kind != YamlNode::Kind::kScalar)
        fail_at(to, field.path, ": found ", describe(to), ", expected the new beginning of names");
      rules_.push_back({from.text, to.text});
    }
  }

  void apply(std::string_view& name) {
    Rule* best = nullptr;
    for (Rule& rule : rules_)
      if (name.starts_with(rule.from) && (!best || rule.from.size() > best->from.size()))
        best = &rule;
    if (!best) return;
    best->is_used = true;
    name = texts_.emplace_back(best->to + std::string(name.substr(best->from.size())));
  }

  void apply(std::vector<TensorRow>& rows) {
    for (TensorRow& row : rows) {
      apply(row.name);
      if (!row.module.empty()) apply(row.module);
      for (SplitRow& part : row.split) apply(part.name);
    }
  }

  void check_all_used() const {
    for (size_t i = 0; i < rules_.size(); ++i)
      if (!rules_[i].is_used)
        fail_at(field_.value.entries[i].key, field_.path, ": no tensor's name begins with '",
                rules_[i].from, "'");
  }

 private:
  struct Rule {
    std::string from, to;
    bool is_used = false;
  };
  const Field& field_;
  std::deque<std::string>& texts_;
  std::vector<Rule> rules_;
};

/// Reads the map of a file.
class FileReader {
 public:
  FileReader(const YamlNode& root, std::deque<std::string>& texts)
      : root_(root), texts_(texts), reader_(texts) {}

  Architecture read() {
    const Field file{"family", root_, root_};
    check_map(file);
    if (const auto field = field_of("like"))
      family_ =
          at_field(*field, [&] { return like(*choose_family(read_string(*field)).architecture); });
    for (const auto& [key, value] : root_.entries) {
      if (std::ranges::find(kEdits, key.text) != kEdits.end()) continue;
      if (reader_.read_named({key.text, key, value}, key.text, family_)) continue;
      std::vector<std::string> known = DescriptorReader::names_of(family_);
      known.insert(known.begin(), kEdits.begin(), kEdits.end());
      fail_unknown_key(file, key, known);
    }
    if (field_of("resolve")) take_preparation();
    check_table("model_tensors", family_.model_tensors, false);
    check_table("layer_tensors", family_.layer_tensors, true);
    edit();
    check_architecture(family_);
    return std::move(family_);
  }

 private:
  static constexpr std::array<std::string_view, 3> kEdits{"like", "drop_tensors", "rename_tensors"};

  std::optional<Field> field_of(std::string_view name) const {
    for (const auto& [key, value] : root_.entries)
      if (key.text == name) return Field{key.text, key, value};
    return std::nullopt;
  }

  /// The code that writes keys as the tables read them goes with the code that a file names.
  void take_preparation() {
    family_.prepare = nullptr;
    for (const Architecture& family : architectures())
      if (family_.resolve && family.resolve == family_.resolve) family_.prepare = family.prepare;
  }

  void check_table(std::string_view name, const std::vector<TensorRow>& rows, bool is_of_layer) {
    const auto field = field_of(name);
    for (size_t i = 0; field && i < rows.size(); ++i)
      at_field(item_of(*field, i), [&] { check_row(rows[i], is_of_layer); });
  }

  void edit() {
    if (const auto field = field_of("drop_tensors")) {
      std::vector<Role> roles;
      reader_.read(*field, roles);
      drop(*field, roles, family_);
    }
    if (const auto field = field_of("rename_tensors")) {
      Renaming renaming(*field, texts_);
      renaming.apply(family_.model_tensors);
      renaming.apply(family_.layer_tensors);
      for (std::string_view& name : family_.ignored_without_cache) renaming.apply(name);
      renaming.check_all_used();
    }
  }

  const YamlNode& root_;
  std::deque<std::string>& texts_;
  DescriptorReader reader_;
  Architecture family_;
};

}  // namespace

FamilyFile::FamilyFile(const std::filesystem::path& path) : path_(path.string()) {
  const std::string text = read_text(path, kFamilyLimits.max_bytes);
  in_context(path_, [&] { read(text); });
}

FamilyFile::FamilyFile(std::string_view text, const std::string& name) : path_(name) {
  read(text);
}

void FamilyFile::read(std::string_view text) {
  const YamlNode root = parse_yaml(text, kFamilyLimits);
  architecture_ = FileReader(root, texts_).read();
  sha256_ = sha256_hex(text);
}

FamilyChoice FamilyFile::choice() const {
  return {.architecture = &architecture_,
          .option = "--family-file",
          .value = path_,
          .file_sha256 = sha256_};
}

}  // namespace kvcal
