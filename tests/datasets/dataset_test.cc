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

// Expectations: tests/reference/datasets_shuffle.py.
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
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "thinking"}]}]}
)"));
  const auto chat = ChatFormat::from_folder(scratch.path());
  REQUIRE(chat.has_value());
  const ByteTokenizer tokenizer;
  KeptDiagnostics diagnostics;
  const SampleOptions all{.num_calibration_samples = 3, .max_seq_length = 99, .shuffle_seed = {}};
  CHECK(shown(read_samples(*dataset, &tokenizer, &*chat, 256, all, diagnostics)) ==
        std::vector<std::string>{"0:user:hi;", "1:user:;assistant:yes;", "2:user:a<thinking>;"});
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
        "a.jsonl:2: the record is not tokenized and there is no tokenizer; give the model's folder "
        "one, or use "
        "a data set of 'input_ids'");
  CHECK(error(chat, nullptr) ==
        "a.jsonl:1: the record is not tokenized and there is no tokenizer; give the model's folder "
        "one, or use "
        "a data set of 'input_ids'");
  CHECK(error(chat, &tokenizer) ==
        "a.jsonl:1: the record is a conversation and the model has no chat template; put "
        "chat_template.jinja "
        "into the model's folder, or use a data set of 'text' or 'input_ids'");
  CHECK(error(R"({"prompt": "hi", "response": "ho", "id": 7, "tags": "[1]"})", &tokenizer) ==
        "a.jsonl:1: the record is a conversation and the model has no chat template; put "
        "chat_template.jinja into the model's folder, or read one of its columns as text: "
        "--text-column 'prompt', or 'response'");
  CHECK(error(text, &foreign) ==
        "a.jsonl:2: the tokenizer gives id 1097, the model's vocabulary has 256 ids; is this the "
        "model's own "
        "tokenizer?");
  CHECK(error("{\"input_ids\": [1, 255, 256]}", nullptr) ==
        "a.jsonl:1: input_ids[2] is 256, the model's vocabulary has 256 ids");
  CHECK(error("{\"text\": \"\"}\n{\"input_ids\": []}\n", &tokenizer) ==
        "the data set gives no sample: all of its 2 records are empty");
  CHECK(error(text, &tokenizer,
              {.num_calibration_samples = 0, .max_seq_length = 1, .shuffle_seed = {}}) ==
        "num_calibration_samples is 0, expected at least 1");
  CHECK(error(text, &tokenizer,
              {.num_calibration_samples = 1, .max_seq_length = 0, .shuffle_seed = {}}) ==
        "max_seq_length is 0, expected at least 1");
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
