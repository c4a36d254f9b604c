#include "inspect/verification.h"

#include "core/join.h"
#include "stored/weights.h"

namespace kvcal {
std::vector<std::string> engine_choice(const std::vector<std::string>& asked) {
  std::vector<std::string> names;
  for (const std::string& name : asked) {
    if (name == "all") return engine_rules().names();
    choose_engine(name);  // fails with the known names
    names.push_back(name);
  }
  return names;
}

Verdict verdict_of(const std::vector<VerifyReport>& reports) {
  Verdict verdict;
  for (const VerifyReport& report : reports)
    (loses_scales(report)    ? verdict.losing
     : !holds_scales(report) ? verdict.empty
     : report.is_known       ? verdict.holding
                             : verdict.unknown)
        .push_back(report.engine);
  return verdict;
}

std::string problem_of(const Verdict& verdict, const VerifyOptions& options, bool allow_16_bit) {
  if (!verdict.losing.empty()) return "scales would be lost in " + join(verdict.losing, ", ");
  const bool needs_scales =
      options.kv_cache_dtype != "bfloat16" && options.kv_cache_dtype != "float16";
  if (verdict.empty.empty() || allow_16_bit || !needs_scales) return "";
  return "holds no scale for " + join(verdict.empty, ", ") +
         "; --allow-16-bit says that none is meant";
}

std::vector<VerifyReport> verify(const std::filesystem::path& checkpoint,
                                 const std::vector<std::string>& engines,
                                 const VerifyOptions& options) {
  const std::vector<std::string> names = engine_choice(engines);
  std::vector<VerifyReport> reports;
  for (const std::string& engine : names)
    reports.push_back(verify_checkpoint(checkpoint, engine, options));
  return reports;
}

}  // namespace kvcal
