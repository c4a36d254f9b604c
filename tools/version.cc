#include "commands.h"

#include <utility>
#include <vector>

#include "core/json.h"
#include "kernels/cpu/target_names.h"
#include "kvcal_build_facts.h"
#include "kvcal_version.h"

namespace kvcal {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string program_version() {
  return KVCAL_VERSION;
}

std::string version_text() {
  return "kvcal " KVCAL_VERSION;
}

std::string version_json() {
  static const std::vector<std::pair<std::string, std::string>> kLibraries = {KVCAL_LIBRARIES};
  Json libraries = Json::object();
  for (const auto& [name, version] : kLibraries) libraries[name] = text_or_null(version);
  std::string text =
      dump_json({{"kvcal_version", KVCAL_VERSION},
                 {"commit", text_or_null(KVCAL_COMMIT)},
                 {"compiler", {{"name", KVCAL_COMPILER}, {"version", KVCAL_COMPILER_VERSION}}},
                 {"build_type", KVCAL_BUILD_TYPE},
                 {"processor", KVCAL_PROCESSOR},
                 {"cpu_targets", cpu_target_names()},
                 {"gpu", text_or_null(KVCAL_GPU_LANGUAGE)},
                 {"mpi", KVCAL_BUILT_WITH_MPI == 1},
                 {"arrow", KVCAL_BUILT_WITH_ARROW == 1},
                 {"curl", KVCAL_BUILT_WITH_CURL == 1},
                 {"libraries", libraries}});
  text.pop_back();  // CLI11 ends the line
  return text;
}

}  // namespace kvcal
