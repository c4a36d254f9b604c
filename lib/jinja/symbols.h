#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "jinja/syntax.h"

namespace kvcal::jinja {

/// A function as the resolver sees it: the template, a macro or a call block.
struct FunctionScope {
  int depth = 0;
  int num_slots = 0;
  std::map<std::pair<int, std::string_view>, int> indices = {};  ///< (level, name) → slot
  uint64_t* work = nullptr;                                      ///< of the whole template

  /// Counts copied names, and parts of the tree that are visited again at each level; throws Error
  /// for a template made to have too many, Interrupted when the user asked to stop.
  void charge(uint64_t count) const {
    constexpr uint64_t kMost = 1'000'000, kCountToAsk = 4096;
    const uint64_t before = *work;
    *work += count;
    if (*work > kMost)
      fail("the template has too many variables, conditions and statements in each other");
    if (*work / kCountToAsk != before / kCountToAsk) throw_if_interrupted();
  }

  int index_of(int level, std::string_view name) {
    const auto [at, is_new] = indices.try_emplace({level, name}, num_slots);
    num_slots += is_new;
    return at->second;
  }
};

struct Variable {
  const FunctionScope* function = nullptr;
  int index = 0;
  auto operator<=>(const Variable&) const = default;
};

/// The names of one scope and how each gets its value on entry. Copies share their parent, which
/// must outlive them. Source: Jinja2 3.1, idtracking.py, Symbols and FrameSymbolVisitor.
class Symbols {
 public:
  Symbols(FunctionScope& function, const Symbols* parent, int level)
      : function_(&function), parent_(parent), level_(level) {}

  int level() const { return level_; }
  FunctionScope& function() const { return *function_; }
  std::optional<Variable> find(std::string_view name) const;

  void declare_parameter(std::string_view name);
  void declare(const Expression* expression);
  /// The names of a target, as parameters (set anew on each entry) or as assigned somewhere in the
  /// scope.
  void declare_target(const Expression* target, bool is_parameter);
  void declare(const Statement* statement);
  void declare(const Block& block);

  /// The loads on entry, parameters left out.
  std::vector<Load> loads() const;

 private:
  struct Entry {
    Load::From from = Load::From::kNothing;
    std::string_view name;
    Variable outer;
  };

  void define(std::string_view name, Load::From from, Variable outer = {});
  /// Defines name with the value that it has outside, or where there is none as otherwise says.
  void define_from_outside(std::string_view name, Load::From otherwise);
  void load(std::string_view name);
  void store(std::string_view name);
  void declare_if(const Statement* statement);
  void merge(const std::vector<Symbols>& branches);

  FunctionScope* function_;
  const Symbols* parent_;
  int level_;
  std::map<std::string_view, Variable> variables_;
  std::map<Variable, Entry> entries_;
  std::set<std::string_view> stores_;
};

/// Which of names the block, a part of function, reads without having assigned them before, in the
/// order of the text.
std::set<std::string_view> undeclared(const FunctionScope& function, const Block& block,
                                      std::initializer_list<std::string_view> names);

/// Calls visit for each argument of a call, in order.
template <class Visit>
void for_each_argument(const CallSyntax& call, Visit&& visit) {
  for (Expression* argument : call.positional) visit(argument);
  for (const auto& [name, argument] : call.named) visit(argument);
  if (call.star != nullptr) visit(call.star);
  if (call.double_star != nullptr) visit(call.double_star);
}

}  // namespace kvcal::jinja
