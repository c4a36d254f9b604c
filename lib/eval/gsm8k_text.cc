#include "eval/gsm8k_text.h"

#include <algorithm>

#include "core/error.h"
#include "core/json.h"
#include "datasets/dataset.h"
#include "datasets/dataset_reader.h"
#include "datasets/descriptor.h"
#include "datasets/record_source.h"
#include "eval/python_random.h"

namespace kvcal {
namespace {

/// lm_eval's DEFAULT_OTHER_SEED.
constexpr uint64_t kFewshotSeed = 1234;
constexpr std::string_view kMark = "#### ", kInvalid = "[invalid]";

std::unique_ptr<RecordSource> open_questions(const fs::path& dataset, const std::string& split) {
  const std::vector<std::string> fields{"question", "answer"};
  if (!dataset_readers().at(reader_for(dataset)).takes_local_copy)
    return open_records(dataset, {.fields = fields, .what = "a data set of gsm8k", .split = split});
  const DatasetOverrides overrides{.local_copy = {}, .split = split};
  open_dataset(dataset, overrides);  // tells how to get a copy that is missing
  return open_records(read_descriptor(dataset, overrides).local_copy,
                      {.fields = fields, .what = "a descriptor's local copy"});
}

std::string question_of(const GsmRecord& record) {
  return "Question: " + record.question + "\nAnswer:";
}

std::string plain_prompt(std::span<const GsmRecord* const> examples, const GsmRecord& question) {
  std::string prompt;
  for (const GsmRecord* example : examples)
    prompt += question_of(*example) + " " + example->answer + "\n\n";
  return prompt + question_of(question);
}

Json turns_of(std::span<const GsmRecord* const> examples, const GsmRecord& question) {
  Json messages = Json::array();
  const auto add = [&](const char* role, const std::string& content) {
    messages.push_back({{"role", role}, {"content", content}});
  };
  for (const GsmRecord* example : examples) {
    add("user", question_of(*example));
    add("assistant", example->answer);
  }
  add("user", question_of(question));
  return messages;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Length of the longest beginning of text whose characters all are.
template <class Test>
size_t run_of(std::string_view text, const Test& is_one) {
  return static_cast<size_t>(std::ranges::find_if_not(text, is_one) - text.begin());
}

/// A match of (-?[$0-9.,]{2,})|(-?[0-9]+) at the beginning of text; 0: none.
size_t number_at(std::string_view text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const std::string_view rest = text.substr(sign);
  const size_t wide =
      run_of(rest, [](char c) { return is_digit(c) || c == '$' || c == '.' || c == ','; });
  if (wide >= 2) return sign + wide;
  const size_t digits = run_of(rest, is_digit);
  return digits > 0 ? sign + digits : 0;
}

/// The task's regexes_to_ignore one after the other, then ignore_case.
std::string normalized(std::string_view text) {
  std::string kept(text);
  std::erase(kept, ',');
  std::erase(kept, '$');
  if (const size_t mark = kept.rfind(kMark); mark != std::string::npos)
    kept.erase(0, mark + kMark.size());
  // Python's $ matches before a line break at the end, too.
  const size_t end = kept.ends_with('\n') ? kept.size() - 1 : kept.size();
  if (end > 0 && kept[end - 1] == '.') kept.erase(end - 1, 1);
  // Extracted answers are ASCII, so other letters' case decides nothing.
  for (char& c : kept)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return kept;
}

}  // namespace

std::vector<GsmRecord> read_gsm_records(const fs::path& dataset, const std::string& split,
                                        std::optional<int64_t> limit) {
  const auto records = open_questions(dataset, split);
  std::vector<GsmRecord> result;
  for (int64_t i = 0; i < std::min(records->size(), limit.value_or(records->size())); ++i) {
    const Json object = records->read(i);
    in_context(records->place(i), [&] {
      if (!object.is_object()) fail("a record is ", kind_of(object), ", expected an object");
      result.push_back({required_string(object, "question"), required_string(object, "answer")});
    });
  }
  return result;
}

std::vector<std::string> gsm_prompts(std::span<const GsmRecord> questions,
                                     std::span<const GsmRecord> examples,
                                     const GsmPromptOptions& options) {
  if (std::ssize(examples) < options.num_fewshot)
    fail(options.num_fewshot, " examples are wanted, there are ", examples.size());
  PythonRandom random(kFewshotSeed);
  std::vector<std::string> prompts;
  for (const GsmRecord& question : questions) {
    std::vector<const GsmRecord*> drawn;
    for (const int64_t index : random.sample(std::ssize(examples), options.num_fewshot))
      drawn.push_back(&examples[static_cast<size_t>(index)]);
    if (!options.chat) {
      prompts.push_back(plain_prompt(drawn, question));
      continue;
    }
    const Json one = Json::array({{{"role", "user"}, {"content", plain_prompt(drawn, question)}}});
    prompts.push_back(options.chat->render_as_given(
        options.fewshot_as_multiturn ? turns_of(drawn, question) : one, true));
  }
  return prompts;
}

std::string strict_answer(std::string_view text) {
  const auto is_part = [](char c) { return is_digit(c) || c == '.' || c == ','; };
  for (size_t mark = text.find(kMark); mark != std::string_view::npos;
       mark = text.find(kMark, mark + 1)) {
    const std::string_view rest = text.substr(mark + kMark.size());
    const size_t sign = rest.starts_with('-') ? 1 : 0;
    if (const size_t length = run_of(rest.substr(sign), is_part); length > 0)
      return std::string(rest.substr(0, sign + length));
  }
  return std::string(kInvalid);
}

std::string flexible_answer(std::string_view text) {
  std::string_view last = kInvalid;
  for (size_t at = 0; at < text.size();) {
    const size_t length = number_at(text.substr(at));
    if (length > 0) last = text.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return std::string(last);
}

bool is_gsm_match(std::string_view extracted, std::string_view answer) {
  return normalized(extracted) == normalized(answer);
}

}  // namespace kvcal
