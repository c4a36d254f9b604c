#include "datasets/dataset.h"

#include "core/file.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "datasets/dataset_reader.h"
#include "datasets/readers/dataset_files.h"

namespace kvcal {
namespace {

/// An id a byte, plus offset; keeps what it was asked for.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(TokenId offset = 0) : offset_(offset) {}
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
    CHECK_FALSE(add_special_tokens);
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + offset_);
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (const TokenId id : ids) text += static_cast<char>(id - offset_);
    return text;
  }
  int64_t vocab_size() const override { return 256 + offset_; }
  std::optional<TokenId> token_to_id(std::string_view) const override { return std::nullopt; }
  std::optional<std::string> id_to_token(TokenId) const override { return std::nullopt; }

 private:
  TokenId offset_;
};

/// Keeps what is said.
class KeptDiagnostics : public Diagnostics {
 public:
  void warn(const std::string& message) override { warnings.push_back(message); }
  void progress(std::string_view stage, int64_t done, int64_t total,
                std::string_view unit) override {
    steps.push_back(std::string(stage) + " " + std::to_string(done) + "/" + std::to_string(total) +
                    " " + std::string(unit));
  }
  std::vector<std::string> warnings, steps;
};

/// Texts and indices of samples.
std::vector<std::string> shown(const std::vector<Sample>& samples) {
  std::vector<std::string> texts;
  for (const Sample& sample : samples)
    texts.push_back(std::to_string(sample.index) + ":" + ByteTokenizer().decode(sample.ids, false));
  return texts;
}

const std::string kFive = R"({"text": "alpha"}
{"text": ""}
{"input_ids": [98, 99]}
{"messages": []}
{"text": "epsilon"}
)";

TEST_CASE("read_samples: in order, cut, empty ones dropped, the others fill their places") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", kFive));
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  const auto samples = read_samples(
      *dataset, &tokenizer, nullptr, 256,
      {.num_calibration_samples = 3, .max_seq_length = 4, .shuffle_seed = {}}, diagnostics);
  CHECK(shown(samples) == std::vector<std::string>{"0:alph", "2:bc", "4:epsi"});
  CHECK(diagnostics.warnings ==
        std::vector<std::string>{"skipped 2 empty records of the data set"});
  CHECK(diagnostics.steps ==
        std::vector<std::string>{"tokenizing 1/3 samples", "tokenizing 1/3 samples",
                                 "tokenizing 2/3 samples", "tokenizing 2/3 samples",
                                 "tokenizing 3/3 samples"});
}

TEST_CASE("read_samples: stops at the number asked for, and reads nothing behind it") {
  const test::ScratchFolder scratch;
  const auto dataset =
      open_dataset(scratch.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\nbroken\n"));
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  const auto samples = read_samples(
      *dataset, &tokenizer, nullptr, 256,
      {.num_calibration_samples = 2, .max_seq_length = 9, .shuffle_seed = {}}, diagnostics);
  CHECK(shown(samples) == std::vector<std::string>{"0:a", "1:b"});
  CHECK(diagnostics.warnings.empty());
}

TEST_CASE("read_samples: says when the data set has fewer records than asked for") {
  const test::ScratchFolder scratch;
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  read_samples(*open_dataset(scratch.write("a.jsonl", kFive)), &tokenizer, nullptr, 256, {},
               diagnostics);
  read_samples(*open_dataset(scratch.write("b.txt", "one\n\ntwo\n")), &tokenizer, nullptr, 256, {},
               diagnostics);
  CHECK(diagnostics.warnings ==
        std::vector<std::string>{
            "512 samples were asked for, the data set has 5 records, of which 2 are "
            "empty: 3 samples are used",
            "512 samples were asked for, the data set has 2 records: 2 samples are used"});
}

// Expectations: reference/datasets_shuffle.py.
TEST_CASE("read_samples: the records that datasets' shuffle and select pick") {
  const auto folder = test::dataset_fixtures();
  const Json expected = parse_json(read_text(folder / "selection.json"));
  const auto dataset = open_dataset(folder / "selection.jsonl");
  const ByteTokenizer tokenizer;
  SilentDiagnostics diagnostics;
  const auto texts = [&](int64_t count, std::optional<uint64_t> seed) {
    const SampleOptions options{
        .num_calibration_samples = count, .max_seq_length = 2048, .shuffle_seed = seed};
    std::vector<std::string> all;
    for (const Sample& sample :
         read_samples(*dataset, &tokenizer, nullptr, 256, options, diagnostics)) {
      all.push_back(tokenizer.decode(sample.ids, false));
      CHECK(all.back() == "record number " + std::to_string(sample.index));
    }
    return all;
  };
  CHECK(texts(5, std::nullopt) == expected["unshuffled"].get<std::vector<std::string>>());
  REQUIRE(expected["rows"].size() == 6);
  for (const Json& row : expected["rows"])
    CHECK(texts(row["samples"].get<int64_t>(), row["seed"].get<uint64_t>()) ==
          row["texts"].get<std::vector<std::string>>());
}

TEST_CASE(
    "read_samples: conversations are rendered by the model's template, without a prompt for more") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
)"));
  const auto chat = ChatFormat::from_folder(test::dataset_fixtures() / "chat_model");
  REQUIRE(chat.has_value());
  const ByteTokenizer tokenizer;
  SilentDiagnostics diagnostics;
  CHECK(
      shown(read_samples(*dataset, &tokenizer, &*chat, 256, {}, diagnostics)) ==
      std::vector<std::string>{"0:<user>hi\n<assistant>hello\n", "1:<user>hi\n<assistant>hello\n"});
}

TEST_CASE("read_samples: of messages with images, audio and video the text stays, said once") {
  const test::ScratchFolder scratch;
  scratch.write("chat_template.jinja",
                "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}"
                "{% else %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% else %}"
                "<{{ p.type }}>{% endif %}{% endfor %}{% endif %};{% endfor %}");
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"role": "user", "content": [{"type": "image", "url": "a.png"}, {"type": "text", "text": "hi"}, {"type": "video_url"}]}]}
{"messages": [{"role": "user", "content": [{"type": "input_audio"}]}, {"role": "assistant", "content": "yes"}]}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "tool_reference", "name": "b"}]}]}
)"));
  const auto chat = ChatFormat::from_folder(scratch.path());
  REQUIRE(chat.has_value());
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  const SampleOptions all{.num_calibration_samples = 3, .max_seq_length = 99, .shuffle_seed = {}};
  CHECK(shown(read_samples(*dataset, &tokenizer, &*chat, 256, all, diagnostics)) ==
        std::vector<std::string>{"0:user:hi;", "1:user:;assistant:yes;",
                                 "2:user:a<tool_reference>;"});
  CHECK(diagnostics.warnings ==
        std::vector<std::string>{
            "left 3 images, audio and video parts out of the messages: only text is run"});
}

TEST_CASE("read_samples: a template that asks for the date gets the same one on any day") {
  const test::ScratchFolder scratch;
  scratch.write("chat_template.jinja", "{{ strftime_now('%a %d %b %Y, day %j, %H:%M') }}");
  const auto dataset = open_dataset(
      scratch.write("a.jsonl", R"({"messages": [{"role": "user", "content": "hi"}]})"));
  const auto chat = ChatFormat::from_folder(scratch.path());
  REQUIRE(chat.has_value());
  const ByteTokenizer tokenizer;
  SilentDiagnostics diagnostics;
  CHECK(shown(read_samples(*dataset, &tokenizer, &*chat, 256, {}, diagnostics)) ==
        std::vector<std::string>{"0:Fri 26 Jul 2024, day 208, 00:00"});
}

TEST_CASE("read_samples: token ids need neither tokenizer nor template") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.json", R"({"ids": [[98, 99], [97]]})"));
  SilentDiagnostics diagnostics;
  CHECK(shown(read_samples(*dataset, nullptr, nullptr, 100, {}, diagnostics)) ==
        std::vector<std::string>{"0:bc", "1:a"});
}

TEST_CASE("samples: lengths of each, and tokens of all") {
  const std::vector<Sample> samples{{.index = 4, .ids = {1, 2, 3}}, {.index = 7, .ids = {5}}};
  CHECK(lengths_of(samples) == std::vector<int64_t>{3, 1});
  CHECK(tokens_of(samples) == 4);
  CHECK(tokens_of({}) == 0);
}

TEST_CASE("read_samples: what cannot be used is an error with its place") {
  const test::ScratchFolder scratch;
  const ByteTokenizer tokenizer, foreign(1000);
  const auto error = [&](const std::string& content, const Tokenizer* use,
                         SampleOptions options = {}) {
    const auto chat = ChatFormat::from_folder(test::dataset_fixtures() / "bad");
    CHECK_FALSE(chat.has_value());
    const auto dataset = open_dataset(scratch.write("a.jsonl", content));
    SilentDiagnostics diagnostics;
    return test::error_of(scratch.path(),
                          [&] { read_samples(*dataset, use, nullptr, 256, options, diagnostics); });
  };
  const std::string text = "\n{\"text\": \"abc\"}\n";
  const std::string chat = R"({"messages": [{"role": "user", "content": "hi"}]})";
  CHECK(error(text, nullptr) ==
        "a.jsonl:2: the record is not tokenized, and the first one is, so no tokenizer was loaded; "
        "give 'input_ids' in all records or in none");
  CHECK(error(chat, nullptr) ==
        "a.jsonl:1: the record is not tokenized, and the first one is, so no tokenizer was loaded; "
        "give 'input_ids' in all records or in none");
  CHECK(error(text, &foreign) ==
        "a.jsonl:2: the tokenizer gives id 1097, the model's vocabulary has 256 ids; is this the "
        "model's own "
        "tokenizer?");
  CHECK(error("{\"input_ids\": [1, 255, 256]}", nullptr) ==
        "a.jsonl:1: input_ids[2] is 256, the model's vocabulary has 256 ids");
  CHECK(error("{\"text\": \"\"}\n{\"input_ids\": []}\n", &tokenizer) ==
        "the data set gives no sample: of its 2 records, each is empty");
  CHECK(error(text, &tokenizer,
              {.num_calibration_samples = 0, .max_seq_length = 1, .shuffle_seed = {}}) ==
        "num_calibration_samples is 0, expected at least 1");
  CHECK(error(text, &tokenizer,
              {.num_calibration_samples = 1, .max_seq_length = 0, .shuffle_seed = {}}) ==
        "max_seq_length is 0, expected at least 1");
}

TEST_CASE("read_samples: without a template the texts of a conversation are joined, said once") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}
{"prompt": "one", "response": "two"}
)"));
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  CHECK(shown(read_samples(*dataset, &tokenizer, nullptr, 256,
                           {.num_calibration_samples = 2, .shuffle_seed = {}}, diagnostics)) ==
        std::vector<std::string>{"0:hi\n\na\nb", "1:one\n\ntwo"});
  CHECK(diagnostics.warnings.empty());
}

TEST_CASE("read_samples: what servers do not pass to the template is a warning with its record") {
  const test::ScratchFolder scratch;
  scratch.write("chat_template.jinja",
                "{% for m in messages %}{{ m.thinking or '' }}{{ m.content }};{% endfor %}");
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"role": "user", "content": "a", "weight": 1}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "hm"}]}
)"));
  const auto chat = ChatFormat::from_folder(scratch.path());
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  const SampleOptions all{.num_calibration_samples = 2, .max_seq_length = 99, .shuffle_seed = {}};
  CHECK(shown(read_samples(*dataset, &tokenizer, &*chat, 256, all, diagnostics)) ==
        std::vector<std::string>{"0:a;", "1:a;b;"});
  REQUIRE(diagnostics.warnings.size() == 1);
  CHECK(diagnostics.warnings[0].starts_with("the chat template gets not all of 1 record"));
  CHECK(diagnostics.warnings[0].ends_with(
      "a.jsonl:3 (record 1): messages[1] of role 'assistant' has the key 'thinking'"));
}

TEST_CASE("read_samples: a message that the template leaves out is a warning with its record") {
  const test::ScratchFolder scratch;
  scratch.write("chat_template.jinja",
                "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }};{% endif %}"
                "{% endfor %}");
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": [{"role": "user", "content": "hi"}]}
{"messages": [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]}
{"messages": [{"role": "developer", "content": "be kind"}, {"role": "user", "content": "ho"}]}
)"));
  const auto chat = ChatFormat::from_folder(scratch.path());
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  CHECK(read_samples(*dataset, &tokenizer, &*chat, 256,
                     {.num_calibration_samples = 3, .shuffle_seed = {}}, diagnostics)
            .size() == 3);
  REQUIRE(diagnostics.warnings.size() == 1);
  CHECK(
      diagnostics.warnings[0].starts_with("the chat template leaves out text of 2 records, the "
                                          "first: "));
  CHECK(
      diagnostics.warnings[0].ends_with("a.jsonl:3 (record 1): messages[0], of role 'developer'"));
}

TEST_CASE("read_samples: bad records are passed over, up to the limit, and counted by reason") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", R"(
{"messages": 5}
{"text": "abc"}
{"text": "broken
{"messages": 5}
{"text": "de"}
)"));
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  SampleOptions options{
      .num_calibration_samples = 5, .shuffle_seed = {}, .skip = parse_skip_limit("60%")};
  CHECK(first_record(*dataset, options.skip).place.ends_with("a.jsonl:3"));
  SkippedRecords skipped;
  CHECK(shown(read_samples(*dataset, &tokenizer, nullptr, 256, options, diagnostics, &skipped)) ==
        std::vector<std::string>{"1:abc", "4:de"});
  CHECK(skipped.count == 3);
  CHECK(skipped.reasons.size() == 2);
  CHECK(skipped.first.find("a.jsonl:2") != std::string::npos);
  CHECK(std::ranges::any_of(diagnostics.warnings, [](const std::string& warning) {
    return warning.starts_with("passed over 3 records that cannot be used, the first: ");
  }));
  options.skip = parse_skip_limit("2");
  const std::string error = test::error_of(scratch.path(), [&] {
    read_samples(*dataset, &tokenizer, nullptr, 256, options, diagnostics);
  });
  CHECK(
      error.starts_with("3 records cannot be used, and --skip-bad-records lets at most 2 of 5 be "
                        "passed over; the last: a.jsonl:5: "));
  for (const char* wrong : {"", "-1", "x", "101%", "1.5"})
    CHECK_THROWS_AS(parse_skip_limit(wrong), Error);
}

TEST_CASE("open_dataset: shapes of published data sets and logs are known") {
  const test::ScratchFolder scratch;
  const auto messages_of = [&](const std::string& line) {
    const Record record = open_dataset(scratch.write("a.jsonl", line))->record(0);
    return std::holds_alternative<Json>(record.content)
               ? std::get<Json>(record.content)
               : Json(std::get<std::string>(record.content));
  };
  const Json pair =
      parse_json(R"([{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}])");
  for (
      const std::string line :
      {R"({"custom_id": "1", "method": "POST", "url": "/v1", "body": {"model": "m", "messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}})",
       R"({"id": "r", "inputs": {"messages": [{"role": "user", "content": "a b"}]}, "outputs": {"content": "c"}})",
       R"({"input": [{"role": "user", "content": "a b"}], "output": [{"type": "reasoning"}, {"role": "assistant", "content": "c"}]})",
       R"({"prompt": [{"role": "user", "content": "a b"}], "chosen": [{"role": "assistant", "content": "c"}], "rejected": []})",
       R"({"prompt": "a b", "chosen": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]})",
       R"({"prompt": "a b", "chosen": "c", "rejected": "d"})",
       R"({"chosen": "\n\nHuman: a b\n\nAssistant: c", "rejected": "\n\nHuman: a b"})",
       R"({"instruction": "a b", "context": "", "response": "c", "category": "x"})",
       R"({"system_prompt": "", "question": "a b", "response": "c"})",
       R"({"question": "a b", "answer": "c"})", R"({"query": "a b", "response": "c"})",
       R"({"problem": "a b", "solution": "c"})"}) {
    INFO(line);
    CHECK(messages_of(line) == pair);
  }
  CHECK(messages_of(R"x({"path": "x.py", "code": "print(1)"})x") == "print(1)");
  CHECK(messages_of(R"({"system_prompt": "s", "question": "q", "response": "r"})").at(0) ==
        Json{{"role", "system"}, {"content", "s"}});
}

TEST_CASE("open_dataset: advice names messages by their path, and no texts that nobody wrote") {
  const test::ScratchFolder scratch;
  const auto error = [&](const std::string& line) {
    return test::error_of(scratch.path(),
                          [&] { open_dataset(scratch.write("a.jsonl", line))->record(0); });
  };
  const std::string none = error(R"({"method": "POST", "url": "/v1/chat/completions"})");
  CHECK(
      none.ends_with("say which to read with --text-column, or --prompt-column and "
                     "--response-column, or --messages-column"));
  const std::string path =
      error(R"({"run": {"log": {"turns": [{"role": "user", "content": "hi"}]}}})");
  CHECK(path.ends_with("say which to read with --messages-column 'run.log.turns'"));
  const auto dataset = open_dataset(scratch.path() / "a.jsonl",
                                    {.records = {.columns = {.messages = "run.log.turns"}}});
  CHECK(std::get<Json>(dataset->record(0).content).size() == 1);
}

TEST_CASE("read_samples: what the template refuses is told with the record's place") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(
      scratch.write("a.jsonl", R"({"messages": [{"role": "nobody", "content": "hi"}]})"));
  const auto chat = ChatFormat::from_folder(test::dataset_fixtures() / "chat_model");
  const ByteTokenizer tokenizer;
  SilentDiagnostics diagnostics;
  const std::string error = test::error_of(
      scratch.path(), [&] { read_samples(*dataset, &tokenizer, &*chat, 256, {}, diagnostics); });
  CHECK(error.rfind("a.jsonl:1: ", 0) == 0);
  CHECK(error.find("nobody") != std::string::npos);
}

TEST_CASE("read_samples: stops when asked to") {
  const test::ScratchFolder scratch;
  const auto dataset = open_dataset(scratch.write("a.jsonl", kFive));
  const ByteTokenizer tokenizer;
  SilentDiagnostics diagnostics;
  request_interrupt();
  CHECK_THROWS_AS(read_samples(*dataset, &tokenizer, nullptr, 256, {}, diagnostics), Interrupted);
  clear_interrupt();
}

TEST_CASE("data sets: records' texts are joined by an empty line when asked for as one") {
  const test::ScratchFolder scratch;
  CHECK(open_dataset(
            scratch.write("a.jsonl", "{\"text\": \"a\\n\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}"))
            ->whole_text() == "a\n\n\n\n\nb");
  const auto mixed =
      open_dataset(scratch.write("b.jsonl", "{\"text\": \"a\"}\n{\"input_ids\": [1]}"));
  CHECK(test::error_of(scratch.path(), [&] { mixed->whole_text(); }) ==
        "b.jsonl:2: holds no text, which is needed to read the data set as one");
}

TEST_CASE("data sets: the extension decides, whatever its case, else the content") {
  const test::ScratchFolder scratch;
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", array = "[{\"text\": \"a\"}]";
  const auto reader = [&](std::string_view name, const std::string& content) {
    return std::string(reader_for(scratch.write(name, content)));
  };
  CHECK(reader("a.jsonl", array) == "jsonl");
  CHECK(reader("a.NDJSON", "") == "jsonl");
  CHECK(reader("a.json", array) == "json_array");
  CHECK(reader("a.json", lines) == "jsonl");
  CHECK(reader("a.Txt", lines) == "plain_text");
  CHECK(reader("a.yml", lines) == "described");
  CHECK(reader("a.YAML", "") == "described");
  CHECK(reader("train", lines) == "jsonl");
  CHECK(reader("train", "\xef\xbb\xbf \n" + lines) == "jsonl");
  CHECK(reader("train", array) == "json_array");
  CHECK(reader("train", "{\"text\": \"a\"}") == "json_array");
  const std::string long_line = "{\"text\": \"" + std::string(kDefaultRecordBytes, 'a') + "\"}\n";
  CHECK(reader("train", long_line + lines) == "jsonl");
  CHECK(reader("train", long_line) == "json_array");
  CHECK(reader("train", "Dear reader") == "plain_text");
  CHECK(reader("train", "") == "plain_text");
}

}  // namespace
}  // namespace kvcal
