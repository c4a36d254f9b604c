#include "shell/completion.h"

#include "core/registry.h"

namespace kvcal {
namespace {

using MakeCompletion = std::string (*)(const ProgramDescription& program);
const Registry<MakeCompletion> kShells{
    "shell", {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}}};

}  // namespace

std::vector<std::string> completion_shells() {
  return kShells.names();
}

std::string completion_script(const std::string& shell, const ProgramDescription& program) {
  return kShells.at(shell)(program);
}

std::string escaped(const std::string& text, const std::string& special,
                    const std::string& escape) {
  std::string result;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) result += escape;
    result += c;
  }
  return result;
}

}  // namespace kvcal
