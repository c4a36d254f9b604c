#include "eval/gsm8k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/usage_error.h"
#include "datasets/dataset.h"
#include "datasets/dataset_reader.h"
#include "datasets/descriptor.h"
#include "eval/generate.h"

namespace kvcal {
namespace {

/// Fills the state of MT19937 from an integer. Source: CPython, Modules/_randommodule.c
/// `init_by_array`, after M. Matsumoto and T. Nishimura.
class PythonSeed {
 public:
  using result_type = uint32_t;
  explicit PythonSeed(uint64_t seed) : key_{static_cast<uint32_t>(seed)} {
    if (seed >> 32) key_.push_back(static_cast<uint32_t>(seed >> 32));
  }
  template <class Words>
  void generate(Words begin, Words end) const {
    const auto words = static_cast<size_t>(end - begin);
    const auto mixed = [&](size_t i) { return begin[i - 1] ^ (begin[i - 1] >> 30); };
    begin[0] = 19650218u;
    for (size_t i = 1; i < words; ++i) begin[i] = 1812433253u * mixed(i) + static_cast<uint32_t>(i);
    size_t i = 1;
    const auto advance = [&] {
      if (++i < words) return;
      begin[0] = begin[words - 1];
      i = 1;
    };
    for (size_t k = 0; k < words; ++k, advance()) {
      const size_t j = k % key_.size();
      begin[i] = (begin[i] ^ (mixed(i) * 1664525u)) + key_[j] + static_cast<uint32_t>(j);
    }
    for (size_t k = 0; k + 1 < words; ++k, advance())
      begin[i] = (begin[i] ^ (mixed(i) * 1566083941u)) - static_cast<uint32_t>(i);
    begin[0] = 0x80000000u;
  }

 private:
  std::vector<uint32_t> key_;
};

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  PythonSeed words(seed);
  random_.seed(words);
}

// Source: CPython, Lib/random.py `_randbelow_with_getrandbits`.
int64_t PythonRandom::below(int64_t bound) {
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(bound)));
  for (;;)
    if (const auto drawn = static_cast<int64_t>(random_() >> (32 - bits)); drawn < bound)
      return drawn;
}

// Source: CPython, Lib/random.py `sample`.
std::vector<int64_t> PythonRandom::sample(int64_t population, int64_t count) {
  if (count < 0 || count > population || population > UINT32_MAX)
    fail(count, " of ", population, " cannot be drawn");
  std::vector<int64_t> drawn;
  int64_t pool_limit = 21;  // a list of so many is smaller than a set
  if (count > 5) {
    int64_t power = 1;
    while (power < 3 * count) power *= 4;
    pool_limit += power;
  }
  if (population <= pool_limit) {
    std::vector<int64_t> pool(static_cast<size_t>(population));
    std::iota(pool.begin(), pool.end(), 0);
    while (std::ssize(drawn) < count) {
      const auto place = static_cast<size_t>(below(std::ssize(pool)));
      drawn.push_back(std::exchange(pool[place], pool.back()));
      pool.pop_back();
    }
    return drawn;
  }
  while (std::ssize(drawn) < count) {
    int64_t index = below(population);
    while (std::ranges::find(drawn, index) != drawn.end()) index = below(population);
    drawn.push_back(index);
  }
  return drawn;
}

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
    fail("wanted: ", counted(options.num_fewshot, "example"), ", there are ", examples.size());
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

namespace {

/// The questions of a run, and what the model is asked.
struct GsmTask {
  std::vector<GsmAnswer> answers;  ///< without what the model writes
  std::vector<BatchPrompt> prompts;
};

void check(const GsmOptions& options) {
  // A descriptor and a folder have splits of their own.
  if (options.fewshot_dataset.empty() && options.num_fewshot > 0 &&
      options.dataset.extension() != ".yaml" && options.dataset.extension() != ".yml" &&
      !is_folder(options.dataset))
    fail_usage("no data set of worked examples (fewshot_dataset) is given, ", options.num_fewshot,
               " are wanted");
}

std::vector<std::string> read_prompts(const GsmOptions& options,
                                      std::span<const GsmRecord> questions) {
  const auto& source = options.fewshot_dataset.empty() ? options.dataset : options.fewshot_dataset;
  std::vector<GsmRecord> examples;
  if (options.num_fewshot > 0) examples = read_gsm_records(source, "train", {});
  std::optional<ChatFormat> chat;
  if (options.apply_chat_template) {
    chat = ChatFormat::from_folder(options.model_folder, options.chat);
    if (!chat) fail(options.model_folder.string(), ": has no chat template");
  }
  return in_context(source.string(), [&] {
    return gsm_prompts(questions, examples,
                       {.num_fewshot = options.num_fewshot,
                        .chat = chat ? &*chat : nullptr,
                        .fewshot_as_multiturn = options.fewshot_as_multiturn});
  });
}

GsmTask prepare(const Tokenizer& tokenizer, const GenerationSettings& settings,
                int64_t max_positions, const GsmOptions& options, Diagnostics& diagnostics) {
  const int64_t longest = max_positions - options.max_gen_toks;
  if (longest <= 0)
    fail("the model has ", max_positions, " positions, which do not hold ", options.max_gen_toks,
         " new tokens (max_gen_toks) and a question");
  const std::vector<GsmRecord> questions = read_gsm_records(options.dataset, "test", options.limit);
  std::vector<std::string> texts = read_prompts(options, questions);
  GsmTask task;
  int64_t num_cut = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const bool has_bos = settings.bos_token && texts[i].starts_with(*settings.bos_token);
    std::vector<TokenId> ids = prompt_ids(tokenizer, settings, texts[i],
                                          has_bos ? std::optional(false) : options.add_bos_token);
    if (std::ssize(ids) > longest) {
      ids.erase(ids.begin(), ids.end() - longest);
      ++num_cut;
    }
    task.prompts.push_back({.ids = std::move(ids), .max_new_tokens = options.max_gen_toks});
    GsmAnswer& answer = task.answers.emplace_back();
    answer.doc_id = static_cast<int64_t>(i);
    answer.prompt = std::move(texts[i]);
    answer.target = questions[i].answer;
  }
  if (num_cut > 0)
    diagnostics.warn("prompts of more than " + counted(longest, "token") +
                     " lose their beginning: " + std::to_string(num_cut) + " of " +
                     std::to_string(questions.size()));
  return task;
}

GsmScore score_of(const std::vector<GsmAnswer>& answers, bool GsmAnswer::*is_match) {
  std::vector<bool> matches;
  for (const GsmAnswer& answer : answers) matches.push_back(answer.*is_match);
  return gsm_score(matches);
}

StopStrings stop_strings(const Tokenizer& tokenizer, const GenerationSettings& settings) {
  std::vector<std::string> stops{"Question:", "</s>", "<|im_end|>"};
  if (settings.eos_token && std::ranges::find(stops, *settings.eos_token) == stops.end())
    stops.push_back(*settings.eos_token);
  return {tokenizer, stops};
}

}  // namespace

// Source: lm_eval 0.4.13, api/metrics.py `mean_stderr`.
GsmScore gsm_score(const std::vector<bool>& matches) {
  if (matches.empty()) fail("there is no answer to score");
  const auto count = static_cast<double>(matches.size());
  const auto right = static_cast<double>(std::ranges::count(matches, true));
  const double mean = right / count;
  if (matches.size() < 2) return {.exact_match = mean, .stderr_of_mean = {}};
  const double squares = right * (1.0 - mean) * (1.0 - mean) + (count - right) * mean * mean;
  return {.exact_match = mean, .stderr_of_mean = std::sqrt(squares / (count - 1.0) / count)};
}

GsmResult run_gsm8k(Decoder& decoder, const Tokenizer& tokenizer, const CacheType& cache_type,
                    const std::vector<LayerKvScales>& scales, const GsmOptions& options,
                    Diagnostics& diagnostics) {
  check(options);
  const GenerationSettings settings = read_generation_settings(options.model_folder);
  for (const std::string& key : settings.not_followed)
    diagnostics.warn("generation_config.json: '" + key +
                     "' is not followed, so answers may differ from transformers'");
  GsmTask task =
      prepare(tokenizer, settings, decoder.config().max_position_embeddings, options, diagnostics);
  const StopStrings stops = stop_strings(tokenizer, settings);
  const auto total = std::ssize(task.prompts);
  GsmResult result{
      .answers = std::move(task.answers), .num_fewshot = options.num_fewshot, .batch_size = 0};
  const int64_t longest = longest_text(task.prompts);
  const int64_t wanted =
      options.batch_size > 0
          ? options.batch_size
          : fitting_slots(decoder.config(), cache_type, scales, longest, options.cache_bytes);
  result.batch_size = std::clamp<int64_t>(total, 1, wanted);
  KvCache cache = decoder.make_cache(cache_type, scales, longest, result.batch_size);
  int64_t done = 0;
  const auto keep = [&](size_t index, const std::vector<TokenId>& ids) {
    GsmAnswer& answer = result.answers[index];
    answer.text = stops.cut(tokenizer.decode(ids, true));
    answer.strict = strict_answer(answer.text);
    answer.flexible = flexible_answer(answer.text);
    answer.is_strict_match = is_gsm_match(answer.strict, answer.target);
    answer.is_flexible_match = is_gsm_match(answer.flexible, answer.target);
    diagnostics.progress("eval", ++done, total, "questions");
  };
  const auto is_end = [&](std::span<const TokenId> ids) {
    return settings.stop_tokens.contains(ids.back()) || stops.end(ids);
  };
  result.use = in_context(options.dataset.string(), [&] {
    return generate_together(
        decoder, cache, task.prompts,
        {.repetition_penalty = settings.repetition_penalty, .is_end = is_end, .on_text = keep});
  });
  result.strict = score_of(result.answers, &GsmAnswer::is_strict_match);
  result.flexible = score_of(result.answers, &GsmAnswer::is_flexible_match);
  return result;
}

Json to_json(const GsmResult& result) {
  const auto error = [](const GsmScore& score) {
    return score.stderr_of_mean ? Json(*score.stderr_of_mean) : Json(nullptr);
  };
  const double seconds = result.use.prefill_seconds + result.use.decode_seconds;
  return {{"exact_match_strict", result.strict.exact_match},
          {"exact_match_strict_stderr", error(result.strict)},
          {"exact_match_flexible", result.flexible.exact_match},
          {"exact_match_flexible_stderr", error(result.flexible)},
          {"num_questions", result.answers.size()},
          {"num_fewshot", result.num_fewshot},
          {"tokens_generated", result.use.new_tokens},
          {"tokens_per_second",
           seconds > 0 ? static_cast<double>(result.use.new_tokens) / seconds : 0.0}};
}

Json to_json(const GsmAnswer& answer) {
  return {{"doc_id", answer.doc_id},
          {"text", answer.text},
          {"strict", answer.strict},
          {"flexible", answer.flexible},
          {"target", answer.target},
          {"exact_match_strict", answer.is_strict_match ? 1 : 0},
          {"exact_match_flexible", answer.is_flexible_match ? 1 : 0}};
}

}  // namespace kvcal
