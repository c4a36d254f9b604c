#include "engines/engine_list.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/join.h"
#include "core/text_table.h"
#include "engines/engine_rules.h"
#include "family/architecture.h"
#include "family/wrapper.h"

namespace kvcal {
namespace {

/// "vLLM 0.32".
std::string engine_title(const EngineVerdict& verdict) {
  return std::string(verdict.engine) + " " + std::string(verdict.version);
}

/// The formats that one engine reads for a family: "compressed-tensors, quark", "none" or "not
/// known".
std::string formats_text(const std::vector<EngineVerdict>& verdicts, std::string_view engine) {
  std::vector<std::string_view> read;
  bool is_known = true;
  for (const EngineVerdict& verdict : verdicts) {
    if (engine_title(verdict) != engine) continue;
    if (verdict.reads == Reads::kYes) read.push_back(verdict.format);
    is_known = is_known && verdict.reads != Reads::kNotKnown;
  }
  if (!read.empty()) return join(read, ", ");
  return is_known ? "none" : "not known";
}

/// The engines that have verdicts, in their order.
std::vector<std::string> engine_titles() {
  std::vector<std::string> titles;
  for (const EngineVerdict& verdict : engine_verdicts("llama"))
    if (std::ranges::find(titles, engine_title(verdict)) == titles.end())
      titles.push_back(engine_title(verdict));
  return titles;
}

}  // namespace

std::string engines_markdown() {
  std::ostringstream out;
  const std::vector<std::string> titles = engine_titles();
  out << "| `model_type` | " << join(titles, " | ") << " |\n| ---";
  for (size_t i = 0; i < titles.size(); ++i) out << " | ---";
  out << " |\n";
  std::vector<std::string_view> types;
  for (const Architecture& architecture : architectures())
    types.insert(types.end(), architecture.model_types.begin(), architecture.model_types.end());
  for (const Wrapper& wrapper : wrappers()) types.push_back(wrapper.model_type);
  for (const std::string_view type : types) {
    const auto verdicts = engine_verdicts(type);
    out << "| `" << type << "`";
    for (const std::string& title : titles) out << " | " << formats_text(verdicts, title);
    out << " |\n";
  }
  return out.str();
}

Json engines_json(const std::string& model_type) {
  Json engines = Json::array();
  if (model_type.empty()) {
    for (const auto& [name, rules] : engine_rules().rows())
      engines.push_back({{"name", name},
                         {"title", rules.title},
                         {"versions", rules.versions},
                         {"model_types", rules.tried}});
    return engines;
  }
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    engines.push_back({{"engine", verdict.engine},
                       {"version", verdict.version},
                       {"format", verdict.format},
                       {"reads", name_of(verdict.reads)},
                       {"note", verdict.note}});
  return engines;
}

std::string engines_text(const std::string& model_type) {
  if (model_type.empty()) {
    TextTable table({"engine", "versions", "model types run"});
    for (const auto& [name, rules] : engine_rules().rows())
      table.add({name, join(rules.versions, ", "), std::to_string(rules.tried.size())});
    return table.text();
  }
  std::ostringstream out;
  for (const EngineVerdict& verdict : engine_verdicts(model_type))
    out << std::left << std::setw(42) << engine_title(verdict) + ", " + std::string(verdict.format)
        << name_of(verdict.reads) << ": " << verdict.note << '\n';
  return out.str();
}

}  // namespace kvcal
