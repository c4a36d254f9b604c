#include <sstream>

#include "shell/command_pages.h"

namespace kvcal {
namespace {

/// "    output: Path,"; an argument of the command has its place, an option its name.
std::string parameter_of(const OptionDescription& option) {
  std::string text = "    " + option.python_name + ": " + option.python_type;
  if (!option.python_default.empty())
    text += " = " + option.python_default;
  else if (!option.is_required)
    text += " | None = None";
  return text + ",\n";
}

/// The arguments that have a place in Python, or the others.
std::string parameters_of(const CommandDescription& command, bool have_place) {
  std::string text;
  for (const auto* list : {&command.arguments, &command.options})
    for (const OptionDescription& option : *list)
      if (!option.python_name.empty() && option.has_place_in_python == have_place)
        text += parameter_of(option);
  return text;
}

std::string indented(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    result += (line.empty() || result.empty() ? "" : "    ") + line + '\n';
  return result;
}

std::string function_of(const CommandDescription& command) {
  const PythonFunction& python = command.python;
  return "\n\ndef " + python.name + "(\n" + parameters_of(command, true) + "    *,\n" +
         parameters_of(command, false) + python.further +
         "    progress: Progress | None = None,\n) -> " + python.returns + ":\n    \"\"\"" +
         indented(python.help) + "    \"\"\"\n    return call(\"" + command.name +
         "\", locals())\n";
}

}  // namespace

std::string python_module(const ProgramDescription& program) {
  std::string text =
      "\"\"\"The commands as functions, made of the options of the program.\"\"\"\n\n"
      "from __future__ import annotations\n\n"
      "from collections.abc import Iterable\n"
      "from typing import Any\n\n"
      "from ._call import Data, Layers, Names, Path, Progress, call\n"
      "from ._results import Output, SweepResults, Verification\n";
  for (const CommandDescription& command : program.commands)
    if (!command.python.name.empty()) text += function_of(command);
  return text;
}

}  // namespace kvcal
