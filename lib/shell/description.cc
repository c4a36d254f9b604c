#include "shell/description.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/join.h"
#include "core/registry.h"

namespace kvcal {

std::string OptionDescription::placeholder() const {
  switch (kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return "TEXT";
    case ValueKind::kNumber:
      return "NUMBER";
    case ValueKind::kFile:
      return "FILE";
    case ValueKind::kFolder:
      return "FOLDER";
    case ValueKind::kPath:
      return "PATH";
    case ValueKind::kChoice:
      return are_choices_joined ? "NAME[+NAME]..." : "NAME";
  }
  return "";
}

std::string upper_name(const OptionDescription& argument) {
  std::string name = argument.names.front();
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool names_choices(const OptionDescription& option) {
  return std::ranges::all_of(option.choices, [&](const std::string& choice) {
    return option.help.find(choice) != std::string::npos;
  });
}

const CommandDescription& command_named(const ProgramDescription& program, const std::string& name,
                                        const std::string& where) {
  const auto found = std::ranges::find(program.commands, name, &CommandDescription::name);
  if (found != program.commands.end()) return *found;
  std::vector<std::string> names;
  for (const CommandDescription& one : program.commands) names.push_back(one.name);
  fail(where, ": unknown command '", name, "'", did_you_mean(name, names), "; commands are ",
       join(names, ", "));
}

}  // namespace kvcal
