#include "stored/dynamic_schemes.h"

#include <optional>
#include <utility>

#include "quant/module_target.h"

namespace kvcal {
namespace {

class DynamicSchemes {
 public:
  DynamicSchemes(std::vector<std::string> except, ModuleScheme rest)
      : except_(std::move(except)), rest_(std::move(rest)) {}

  void add(const std::string& written, const Json& entry,
           const std::function<ModuleScheme(const Json& entry)>& overridden) {
    const bool stays = written.starts_with("-:");
    const std::string pattern =
        "re:" + (stays || written.starts_with("+:") ? written.substr(2) : written);
    check_target(pattern);
    if (stays) {
      rules_.emplace_back(pattern, std::nullopt);
      return;
    }
    if (!entry.is_object()) fail("found ", kind_of(entry), ", expected an object");
    for (const char* key : {"format", "checkpoint_format", "method", "quant_method"})
      if (find_field(entry, key))
        fail("key '", key, "' gives modules another layout, which is not read");
    rules_.emplace_back(pattern, overridden(entry));
  }

  const ModuleScheme* operator()(const ModuleName& module) const {
    if (module.class_name == "Embedding" ||
        is_exception(except_, ExceptionMatch::kParts, module.name))
      return nullptr;
    for (const auto& [pattern, scheme] : rules_)
      if (matches_target(pattern, module.name) ||
          (!module.alias.empty() && matches_target(pattern, module.alias)))
        return scheme ? &*scheme : nullptr;
    return &rest_;
  }

 private:
  std::vector<std::string> except_;
  ModuleScheme rest_;
  std::vector<std::pair<std::string, std::optional<ModuleScheme>>> rules_;
};

}  // namespace

ModuleSchemes dynamic_schemes(const Json* dynamic, std::vector<std::string> except,
                              ModuleScheme rest,
                              const std::function<ModuleScheme(const Json& entry)>& overridden) {
  DynamicSchemes schemes(std::move(except), std::move(rest));
  if (!dynamic) return schemes;
  if (!dynamic->is_object()) fail_kind("dynamic", "an object of patterns", *dynamic);
  for (const auto& [written, entry] : dynamic->items())
    in_context("dynamic." + written, [&, &written = written, &entry = entry] {
      schemes.add(written, entry, overridden);
    });
  return schemes;
}

}  // namespace kvcal
