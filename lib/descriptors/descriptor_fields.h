#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/text.h"
#include "family/architecture.h"

namespace kvcal {

// The fields of the records in an Architecture, once for the reader and the template. As for the
// Architecture's own (family/architecture.h), each function calls visit(name, value, comment) for
// every field, in the file's order.

/// A value of any kind as JSON in a string_view.
struct JsonValue {
  std::string_view& text;
};
/// Conditions of a row that must hold, or must not.
struct ConditionList {
  std::vector<Condition>& conditions;
  bool wanted;
};
/// Comment of a field that its record needs.
constexpr std::string_view kRequired = "required";

template <class Visit>
void visit_fields(KeyAlias& alias, Visit&& visit) {
  visit("key", alias.key, kRequired);
  visit("alias", alias.alias, kRequired);
}

template <class Visit>
void visit_fields(SwitchKey& entry, Visit&& visit) {
  visit("key", entry.key, kRequired);
  visit("sets", entry.field, kRequired);
}

template <class Visit>
void visit_fields(NumberKey& entry, Visit&& visit) {
  visit("key", entry.key, kRequired);
  visit("sets", entry.field, kRequired);
  visit("reading", entry.reading, "");
}

template <class Visit>
void visit_fields(FixedKey& entry, Visit&& visit) {
  visit("key", entry.key, kRequired);
  visit("value", JsonValue{entry.value}, kRequired);
}

template <class Visit>
void visit_fields(NamePrefix& prefix, Visit&& visit) {
  visit("backbone", prefix.backbone, kRequired);
  visit("head", prefix.head, "");
}

template <class Visit>
void visit_fields(SplitRow& row, Visit&& visit) {
  visit("role", row.role, kRequired);
  visit("name", row.name, kRequired);
}

template <class Visit>
void visit_fields(TensorRow& row, Visit&& visit) {
  visit("role", row.role, kRequired);
  visit("name", row.name, kRequired);
  visit("shape", row.shape, kRequired);
  visit("when", ConditionList{row.conditions, true}, "");
  visit("unless", ConditionList{row.conditions, false}, "");
  visit("layout", row.layout, "");
  visit("repeat", row.repeat, "");
  visit("split", row.split, "");
  visit("module", row.module, "");
  visit("is_flat", row.is_flat, "");
  visit("is_run_by_layers", row.is_run_by_layers, "");
  visit("is_run_by_last_layer", row.is_run_by_last_layer, "");
}

/// A part of an Architecture that a file gives as a map.
template <class Value>
concept IsRecord = requires(Value& value) {
  visit_fields(value, [](std::string_view, auto&&, std::string_view) {});
};

/// Words for values, in the order in which users see them.
template <class Value>
struct NameTable {
  std::string_view what;  ///< kind of value, for messages
  std::vector<std::pair<std::string, Value>> rows;

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [word, value] : rows) all.push_back(word);
    return all;
  }
  const Value* find(std::string_view wanted) const {
    for (const auto& [word, value] : rows)
      if (word == wanted) return &value;
    return nullptr;
  }
  /// Throws Error with the nearest word and all.
  const Value& at(std::string_view wanted) const {
    if (const Value* value = find(wanted)) return *value;
    fail("unknown ", what, " '", wanted, "'", did_you_mean(wanted, names()), "; known are ",
         join(names(), ", "));
  }
  /// Word of a value, which has one.
  const std::string& word_of(const Value& wanted) const {
    for (const auto& [word, value] : rows)
      if (value == wanted) return word;
    fail("a ", what, " has no word in files of families");
  }
};

EnumText text_of(Dim);
EnumText text_of(RouterScore);
EnumText text_of(GroupScore);

/// The words of an enum that is declared with its text.
template <class Value>
requires requires(Value value) {
  text_of(value);
}
NameTable<Value> words_of(const Value*) {
  const auto [what, enumerators] = text_of(Value());
  NameTable<Value> table{what, {}};
  for (size_t at = 0; at < enumerators.size();) {
    const size_t end = std::min(enumerators.find(',', at), enumerators.size());
    table.rows.emplace_back(word_of_enumerator(enumerators.substr(at, end - at)),
                            static_cast<Value>(table.rows.size()));
    at = enumerators.find('k', end);
  }
  return table;
}
/// Without those that are no row of a family: the input of drafts (draft_input_rows).
NameTable<Role> words_of(const Role*);
// Fields have their own names.
NameTable<bool ModelConfig::*> words_of(bool ModelConfig::*const*);
NameTable<bool LayerConfig::*> words_of(bool LayerConfig::*const*);
NameTable<float ModelConfig::*> words_of(float ModelConfig::*const*);

/// A type that has words.
template <class Value>
concept HasWords = requires(const Value* none) {
  words_of(none);
};

template <HasWords Value>
const NameTable<Value>& words() {
  static const NameTable<Value> kWords = words_of(static_cast<const Value*>(nullptr));
  return kWords;
}

/// Hooks in C++, by the name of the built-in family that has one.
std::vector<std::string> hook_names();

/// Throws Error for a row that no forward pass reads: a role with a shape and layout that no
/// built-in family gives it, conditions of a layer outside of the layers, names without the numbers
/// that the row repeats over. is_of_layer: of layer_tensors.
void check_row(const TensorRow& row, bool is_of_layer);

/// Checks a family, a built-in one or a file's: names, keys, every row, and that the tables have
/// the tensors of its variations. Throws Error naming field and value.
void check_architecture(const Architecture& family);

}  // namespace kvcal
