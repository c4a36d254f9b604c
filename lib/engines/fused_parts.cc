#include "engines/fused_parts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/safe_points.h"
#include "core/text.h"
#include "family/expected_tensors.h"
#include "quant/module_target.h"
#include "quant/quant_plan.h"

namespace kvcal {
namespace {

/// Linears that engines run as one.
struct FusedSet {
  std::string_view kind;  ///< as EngineAnswers::apart has it
  FusedModules modules;
  int64_t layer = -1;
};

/// K and V of a layer that reads another layer's cache, beside its queries.
constexpr std::string_view kShared = "shared";
constexpr std::string_view kExpert = "expert";

class SetFinder {
 public:
  explicit SetFinder(const ModelConfig& config) : config_(config) {
    for (const ModuleName& module : list_modules(config))
      if (module.role) add(module);
  }

  std::vector<FusedSet> find() const {
    std::vector<FusedSet> sets;
    for (FusedModules& fused : fused_modules(names_)) {
      const int64_t layer = layers_.at(fused.members[0]);
      sets.push_back({kind_of(fused, layer), std::move(fused), layer});
    }
    for (const auto& [expert, members] : experts_)
      sets.push_back({kExpert, {.name = expert, .members = members}, layers_.at(members[0])});
    return sets;
  }

 private:
  void add(const ModuleName& module) {
    const size_t dot = module.name.rfind('.') + 1;
    const std::string parent = module.name.substr(0, dot);
    layers_.emplace(module.name, module.layer);
    if (is_expert(module.name)) {
      if (module.index == 0) experts_[parent.substr(0, parent.size() - 1)].push_back(module.name);
      return;
    }
    names_.push_back(module.name);
    // Engines ask for the names of all parts, also of V that is K's and of what nobody runs.
    const std::string_view part = std::string_view(module.name).substr(dot);
    if (part == "q_proj" && reads_other_cache(module.layer))
      for (const char* other : {"k_proj", "v_proj"}) names_.push_back(parent + other);
    if (part == "k_proj" && module.layer >= 0 && !config_.layer(module.layer).has_value_projection)
      names_.push_back(parent + "v_proj");
  }

  bool reads_other_cache(int64_t layer) const {
    return layer >= 0 && config_.has_attention(layer) && !config_.has_own_cache(layer);
  }

  std::string_view kind_of(const FusedModules& fused, int64_t layer) const {
    const std::string& last = fused.members[1];
    if (!last.ends_with(".k_proj")) return last.ends_with(".up_proj") ? "up_proj" : "kv_a_proj";
    return reads_other_cache(layer) ? kShared : "k_proj";
  }

  const ModelConfig& config_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t, std::less<>> layers_;
  std::map<std::string, std::vector<std::string>> experts_;  ///< the first of each layer
};

/// What a configuration excepts from quantization.
std::vector<std::string> exceptions_of(const CacheDeclaration& declaration) {
  static const std::vector<std::pair<std::string_view, std::vector<const char*>>> kKeys{
      {"compressed-tensors", {"ignore"}},
      {"fp8", {"ignored_layers", "modules_to_not_convert"}},
      {"modelopt*", {"ignore", "exclude_modules"}},
      {"quark", {"exclude"}}};
  std::vector<std::string> entries;
  for (const auto& [method, keys] : kKeys) {
    if (!matches_method(method, declaration.method)) continue;
    for (const Json* object : {&declaration.config, &declaration.fields})
      for (const char* key : keys)
        for (const Json& entry : value_of(*object, key))
          if (entry.is_string()) entries.push_back(entry.get<std::string>());
  }
  return entries;
}

bool is_path_in(std::string_view entry, std::string_view name) {
  while (entry.ends_with('.')) entry.remove_suffix(1);
  return ("." + std::string(name) + ".").find("." + std::string(entry) + ".") != std::string::npos;
}

/// Patterns that are none name nothing here; what the engine makes of them is another finding.
bool is_matched(const std::string& entry, const std::string& name) {
  try {
    return matches_target(entry, name);
  } catch (const Error&) {
    return false;
  }
}

bool names_part(PartNames how, const std::string& entry, const std::string& name) {
  switch (how) {
    case PartNames::kNotAsked:
      return false;
    case PartNames::kNames:
      return entry == name;
    case PartNames::kExpressions:
      return is_matched(entry, name);
    case PartNames::kEnds:
      return is_matched(entry, name) || (!entry.starts_with("re:") && name.ends_with("." + entry));
    case PartNames::kPaths:
      return is_path_in(entry, name);
  }
  return false;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

class PartChecker {
 public:
  PartChecker(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings, bool& loads)
      : subject_(subject),
        model_dir_(model_dir),
        findings_(findings),
        loads_(loads),
        entries_(exceptions_of(subject.declaration)) {}

  void check(const FusedSet& set) {
    const FusedParts& rules = subject_.rules.parts;
    if (set.kind == kExpert && !rules.compares_experts) return;
    if (rules.by_model && has_type(subject_.engine.seen().unfused, set.kind)) return;
    std::vector<std::string> excepted, others;
    for (const std::string& member : set.modules.members)
      (is_excepted(member) ? excepted : others).push_back(last_part(member));
    const bool is_compared = !rules.by_model ||
                             std::ranges::find(rules.compared, set.kind) != rules.compared.end() ||
                             !has_type(subject_.engine.seen().apart, set.kind);
    if ((rules.prefers_whole || !is_compared) && is_excepted(set.modules.name)) return;
    if (!is_compared || excepted.empty())
      check_codes(set, is_compared);
    else if (!others.empty())
      refuse(set, excepted, others);
  }

 private:
  bool is_excepted(const std::string& name) const {
    return std::ranges::any_of(entries_, [&](const std::string& entry) {
      points_.pass();
      return names_part(subject_.rules.parts.names, entry, name);
    });
  }

  /// Whether the engine was seen to do so with models of the type.
  bool has_type(const std::map<std::string, std::vector<std::string>, std::less<>>& by_part,
                std::string_view kind) const {
    const auto types = by_part.find(kind);
    return types != by_part.end() &&
           std::ranges::find(types->second, subject_.model_type) != types->second.end();
  }

  std::string general(const FusedSet& set) const {
    return replaced(set.modules.name, "." + std::to_string(set.layer) + ".", ".N.");
  }

  void refuse(const FusedSet& set, const std::vector<std::string>& excepted,
              const std::vector<std::string>& others) {
    loads_ = false;
    findings_.add(set.layer, Severity::kError,
                  "it runs " + general(set) +
                      " as one, and refuses that the configuration excepts " +
                      join(excepted, ", ", std::identity()) + " of it from quantization, and not " +
                      join(others, ", ", std::identity()),
                  "except all of them, or none");
  }

  /// Weights in 16 bits of a Linear that it takes for quantized. beside_codes: where others of its
  /// parts have codes; where none has, what the configuration describes is wrong.
  void check_codes(const FusedSet& set, bool beside_codes) {
    if (set.kind == kShared) return;  // nobody runs them
    std::vector<std::string> numbers;
    bool has_codes = false;
    for (const std::string& member : set.modules.members) {
      const TensorView* weight = model_dir_.find(member + ".weight");
      if (!weight) continue;
      if (is_float(weight->dtype))
        numbers.push_back(last_part(member));
      else
        has_codes = true;
    }
    if (numbers.empty() || (beside_codes && !has_codes)) return;
    findings_.add(set.layer, Severity::kError,
                  "it runs " + general(set) +
                      " as one with quantized weights, and takes those of " +
                      join(numbers, ", ", std::identity()) + ", which are in 16 bits, for codes",
                  has_codes ? "quantize all of its parts, or none"
                            : "name " + general(set) + " among what is not quantized, too");
  }

  const VerifyCase& subject_;
  const ModelDir& model_dir_;
  Findings& findings_;
  bool& loads_;
  std::vector<std::string> entries_;
  mutable SafePoints points_;  ///< of entries times names
};

}  // namespace

void check_fused_parts(const VerifyCase& subject, const ModelDir& model_dir, Findings& findings,
                       bool& loads) {
  if (subject.rules.parts.names == PartNames::kNotAsked || !declares_weights(subject.declaration))
    return;
  PartChecker checker(subject, model_dir, findings, loads);
  for (const FusedSet& set : SetFinder(subject.config).find()) checker.check(set);
}

}  // namespace kvcal
