#include "stored/fp8_schemes.h"

#include <fnmatch.h>

#include <algorithm>

#include "stored/stored_form.h"

namespace kvcal {
namespace {

/// Whether part is name, or consists of dot-separated parts of it: "gate" matches "mlp.gate", not
/// "mlp.gate_proj". Engines agree only on whole names; published lists also have parts (MiniMax,
/// Ministral 3). Source: transformers 5.17 `should_convert_module`, vLLM 0.32 `is_layer_skipped`.
bool has_part(std::string_view name, std::string_view part) {
  if (part.empty()) return false;
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

class SchemeWithExceptions : public ModuleSchemes {
 public:
  SchemeWithExceptions(std::vector<std::string> except, ExceptionMatch how, ModuleScheme scheme,
                       std::unique_ptr<CodedStorage> storage)
      : scheme_(std::move(scheme)), except_(std::move(except)), how_(how) {
    if (storage) scheme_.storage = keep(std::move(storage));
  }

  const ModuleScheme* find(const ModuleName& module) const override {
    const bool is_read =
        module.class_name != "Embedding" && !is_exception(except_, how_, module.name);
    return is_read ? &scheme_ : nullptr;
  }

 private:
  ModuleScheme scheme_;
  std::vector<std::string> except_;
  ExceptionMatch how_;
};

}  // namespace

bool is_exception(const std::vector<std::string>& entries, ExceptionMatch how,
                  const std::string& module) {
  return std::ranges::any_of(entries, [&](const std::string& entry) {
    if (how == ExceptionMatch::kParts) return has_part(module, entry);
    // Older ModelOpt lists substrings of names. Source: vLLM 0.32 `is_layer_excluded`.
    return module.find(entry) != std::string::npos ||
           ::fnmatch(entry.c_str(), module.c_str(), FNM_NOESCAPE) == 0;
  });
}

bool is_named_by_quark(const std::string& pattern, const std::string& module,
                       TargetMatcher matches) {
  return pattern.starts_with("re:") ? matches(pattern, module, "")
                                    : ::fnmatch(pattern.c_str(), module.c_str(), FNM_NOESCAPE) == 0;
}

std::unique_ptr<ModuleSchemes> all_but(std::vector<std::string> except, ExceptionMatch how,
                                       ModuleScheme scheme, std::unique_ptr<CodedStorage> storage) {
  return std::make_unique<SchemeWithExceptions>(std::move(except), how, std::move(scheme),
                                                std::move(storage));
}

std::unique_ptr<ModuleSchemes> read_module_schemes(const QuantizationConfig& config,
                                                   TargetMatcher matches) {
  if (!config.form) return nullptr;
  return in_context(config.where, [&] { return config.form->read_schemes(config, matches); });
}

}  // namespace kvcal
