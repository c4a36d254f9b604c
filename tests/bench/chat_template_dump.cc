// Renders templates for comparison with other renderers: reference/compare_chat_template.py
// and served_templates.py.
//   chat_template_dump < templates.jsonl        each line {"template": "...", "variables": {...}}
//   chat_template_dump FOLDER < records.jsonl   each line a record, {"messages": [...], ...}
// A record is rendered by the folder's template with its own "tools", "documents" and
// "chat_template_kwargs". Keys beside these: "add_generation_prompt"; "chat_template", a file, and
// "template_variables", as the options of such names; "ids", true for token ids.
// Each line gives {"text": "...", "ids": [...]} or {"error": "..."}.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>

#include "core/json.h"
#include "datasets/chat_template.h"
#include "datasets/dataset_reader.h"
#include "tokenizers/tokenizer.h"

namespace {

/// The clock of reference/chat_template_reference.py.
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

class FolderRenderer {
 public:
  explicit FolderRenderer(std::string folder) : folder_(std::move(folder)) {}

  kvcal::Json operator()(const kvcal::Json& line) {
    const kvcal::ChatOptions options{
        .template_file = line.value("chat_template", ""),
        .variables = line.value("template_variables", kvcal::Json(nullptr))};
    const auto format = kvcal::ChatFormat::from_folder(folder_, options);
    if (!format) kvcal::fail(folder_, " holds no chat template");
    const kvcal::Record record = kvcal::to_record(line, "the line");
    kvcal::Json result;
    const std::string text =
        format->render(std::get<kvcal::Json>(record.content),
                       line.value("add_generation_prompt", false), record.variables, fixed_time);
    result["text"] = text;
    if (line.value("ids", false)) result["ids"] = tokenizer().encode(text, false);
    return result;
  }

 private:
  const kvcal::Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = kvcal::make_tokenizer(folder_);
    return *tokenizer_;
  }

  std::string folder_;
  std::unique_ptr<kvcal::Tokenizer> tokenizer_;
};

kvcal::Json rendered(const kvcal::Json& line) {
  const kvcal::ChatTemplate chat(line.at("template").get<std::string>());
  return {{"text", chat.render(line.at("variables"), fixed_time)}};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    FolderRenderer renderer(argc > 1 ? argv[1] : "");
    for (std::string line; std::getline(std::cin, line);) {
      kvcal::Json result;
      try {
        const kvcal::Json read = kvcal::parse_json(line);
        result = argc > 1 ? renderer(read) : rendered(read);
      } catch (const kvcal::Error& error) {
        result = {{"error", error.message()}};
      }
      std::cout << result.dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
