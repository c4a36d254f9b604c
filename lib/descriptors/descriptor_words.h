#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/join.h"
#include "core/registry.h"
#include "family/architecture.h"

namespace kvcal {

/// Words for values, in the order in which users see them.
template <class Value>
struct WordTable {
  std::string what;  ///< kind of value, for messages
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

// Tables by the type of value, for which the null pointer stands.
const WordTable<ExpertLayers>& words(const ExpertLayers*);
const WordTable<DraftLayer>& words(const DraftLayer*);
const WordTable<FusedQkv>& words(const FusedQkv*);
const WordTable<GroupScore>& words(const GroupScore*);
const WordTable<Layout>& words(const Layout*);
const WordTable<LocalRope>& words(const LocalRope*);
const WordTable<Mixer>& words(const Mixer*);
const WordTable<NumberKey::Reading>& words(const NumberKey::Reading*);
const WordTable<Positions>& words(const Positions*);
const WordTable<Indexer>& words(const Indexer*);
const WordTable<QkNorm>& words(const QkNorm*);
/// Without those that are no row of a family: the input of drafts (draft_input_rows).
const WordTable<Role>& words(const Role*);
const WordTable<RouterScore>& words(const RouterScore*);
const WordTable<SlidingWindow>& words(const SlidingWindow*);
const WordTable<Dim>& words(const Dim*);
// Fields have their own names.
const WordTable<bool ModelConfig::*>& words(bool ModelConfig::*const*);
const WordTable<bool LayerConfig::*>& words(bool LayerConfig::*const*);
const WordTable<float ModelConfig::*>& words(float ModelConfig::*const*);

/// A type that has a table.
template <class Value>
concept HasWords = requires(const Value* none) {
  words(none);
};

template <HasWords Value>
const WordTable<Value>& words() {
  return words(static_cast<const Value*>(nullptr));
}

/// Hooks in C++, by the name of the built-in family that has one.
std::vector<std::string> hook_names();

}  // namespace kvcal
