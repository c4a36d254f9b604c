// Renders templates for comparison with transformers (tests/reference/compare_chat_template.py).
//   chat_template_dump FOLDER < conversations.jsonl   each line {"messages": [...], …}: that
//   folder's template chat_template_dump < templates.jsonl              each line {"template":
//   "...", "variables": {...}}
// Each line gives {"text": "..."} or {"error": "..."}.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <optional>
#include <string>

#include "core/json.h"
#include "datasets/chat_template.h"

namespace {

/// The clock of tests/reference/chat_template_reference.py.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 2024 - 1900;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 15;
  time.tm_min = 4;
  time.tm_sec = 9;
  time.tm_isdst = -1;
  std::mktime(&time);
  return time;
}

std::string rendered(const std::optional<kvcal::ChatFormat>& format, const kvcal::Json& line) {
  if (format) {
    const bool has_prompt = line.value("add_generation_prompt", false);
    return format->render(line.at("messages"), has_prompt, {}, fixed_time);
  }
  return kvcal::ChatTemplate(line.at("template").get<std::string>())
      .render(line.at("variables"), fixed_time);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::optional<kvcal::ChatFormat> format;
    if (argc > 1 && !(format = kvcal::ChatFormat::from_folder(argv[1])))
      kvcal::fail(argv[1], " holds no chat template");
    for (std::string line; std::getline(std::cin, line);) {
      kvcal::Json result;
      try {
        result["text"] = rendered(format, kvcal::parse_json(line));
      } catch (const kvcal::Error& error) {
        result["error"] = error.message();
      }
      std::cout << result.dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
