#include "eval/sequences.h"

#include <set>

#include "core/file.h"
#include "datasets/dataset.h"
#include "support/catch.h"
#include "support/demo_model.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "tokenizers/tokenizer.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::ScratchFolder;

namespace {

const fs::path kTokenizer = test::tests_folder() / "cli/data";

std::vector<ScoredSequence> read(const fs::path& dataset, const SequenceOptions& options) {
  SilentDiagnostics diagnostics;
  return read_sequences(dataset, kTokenizer, 1000, options, diagnostics);
}

}  // namespace

TEST_CASE("every token of a text but its first is scored once, with all the context there is") {
  const ScratchFolder scratch;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The ship came home, number " + std::to_string(i) + ".\n";
  write_file_atomically(scratch.path() / "text.txt", text, false);
  const std::vector<TokenId> ids = make_tokenizer(kTokenizer)->encode(text, true);
  for (const int64_t stride : {0, 1, 7, 16, 29, 30}) {
    CAPTURE(stride);
    const auto windows = read(scratch.path() / "text.txt",
                              {.num_sequences = 100000, .max_seq_length = 30, .stride = stride});
    const auto step = static_cast<size_t>(stride == 0 ? 30 : stride);
    std::vector<int> scored(ids.size(), 0);
    for (size_t i = 0; i < windows.size(); ++i) {
      const size_t begin = i * step;
      REQUIRE(windows[i].ids.size() == std::min<size_t>(30, ids.size() - begin));
      for (size_t at = 0; at < windows[i].ids.size(); ++at) {
        REQUIRE(windows[i].ids[at] == ids[begin + at]);
        if (at >= windows[i].first_scored) ++scored[begin + at];
      }
      CHECK(windows[i].first_scored >= 1);
    }
    for (size_t at = 0; at < scored.size(); ++at)
      // Without overlap the first token of each window has no context.
      CHECK(scored[at] == (at == 0 || (step == 30 && at % 30 == 0) ? 0 : 1));
  }
  CHECK(read(scratch.path() / "text.txt", {.num_sequences = 3, .max_seq_length = 30}).size() == 3);
}

TEST_CASE("a text whose first records are skipped begins after them") {
  const ScratchFolder scratch;
  write_file_atomically(scratch.path() / "text.txt", "One.\n\nTwo.\n\nThree.\n\nFour.\n", false);
  write_file_atomically(scratch.path() / "text.jsonl",
                        "{\"text\": \"One.\"}\n{\"text\": \"\"}\n{\"text\": \"Two.\"}\n"
                        "{\"text\": \"Three.\"}\n{\"text\": \"Four.\"}\n",
                        false);
  const std::vector<TokenId> rest = make_tokenizer(kTokenizer)->encode("Three.\n\nFour.", true);
  for (const char* name : {"text.txt", "text.jsonl"}) {
    CAPTURE(name);
    const auto windows = read(scratch.path() / name, {.num_skipped = 2});
    REQUIRE(windows.size() == 1);
    CHECK(windows[0].ids == rest);
  }
  // Nothing is left but records without content.
  write_file_atomically(scratch.path() / "end.jsonl",
                        "{\"text\": \"One.\"}\n{\"text\": \"\"}\n{\"text\": \"\"}\n", false);
  for (const ScoredSequence& one : read(scratch.path() / "end.jsonl", {.num_skipped = 1}))
    CHECK(one.ids.size() <= one.first_scored);
  // In a shuffled order, the records that remain.
  const auto one = read(scratch.path() / "text.txt", {.num_skipped = 3, .shuffle_seed = 1});
  const std::vector<std::string> texts{"One.", "Two.", "Three.", "Four."};
  const auto last = static_cast<size_t>(shuffled_indices(4, 1).back());
  CHECK(one.at(0).ids == make_tokenizer(kTokenizer)->encode(texts.at(last), true));
}

TEST_CASE("lists of ids are a sequence each") {
  const ScratchFolder scratch;
  const fs::path file = scratch.path() / "ids.jsonl";
  write_file_atomically(file, "{\"input_ids\": [5, 6, 7, 8]}\n{\"input_ids\": [9, 10]}\n", false);
  const auto sequences = read(file, {.max_seq_length = 3});
  REQUIRE(sequences.size() == 2);
  CHECK(sequences[0].ids == std::vector<TokenId>{5, 6, 7});
  CHECK(sequences[0].first_scored == 1);
  CHECK(sequences[1].ids == std::vector<TokenId>{9, 10});
}

TEST_CASE("a stride that leaves tokens out, or has nothing to slide over, is refused") {
  const ScratchFolder scratch;
  const fs::path file = scratch.path() / "ids.jsonl";
  write_file_atomically(file, "{\"input_ids\": [5, 6, 7, 8]}\n", false);
  CHECK(contains(message_of([&] { read(file, {.max_seq_length = 8, .stride = 9}); }),
                 "the stride is 9, more than the 8 tokens of a window"));
  CHECK(contains(message_of([&] { read(file, {.max_seq_length = 8, .stride = 4}); }),
                 "ids.jsonl: a stride needs text that windows slide over, these are lists of ids"));
}

TEST_CASE("records that come first are passed over, in the order of the shuffle") {
  const ScratchFolder scratch;
  const fs::path file = scratch.path() / "ids.jsonl";
  std::string lines;
  for (int i = 10; i < 20; ++i) lines += "{\"input_ids\": [1, " + std::to_string(i) + "]}\n";
  write_file_atomically(file, lines, false);
  const auto last_ids = [](const std::vector<ScoredSequence>& sequences) {
    std::vector<TokenId> ids;
    for (const ScoredSequence& one : sequences) ids.push_back(one.ids.back());
    return ids;
  };
  CHECK(last_ids(read(file, {.num_sequences = 3, .num_skipped = 4})) ==
        std::vector<TokenId>{14, 15, 16});
  CHECK(last_ids(read(file, {.num_sequences = 30, .num_skipped = 8})) ==
        std::vector<TokenId>{18, 19});
  const auto shuffled = last_ids(read(file, {.num_sequences = 10, .shuffle_seed = 5}));
  CHECK(last_ids(read(file, {.num_sequences = 4, .num_skipped = 3, .shuffle_seed = 5})) ==
        std::vector<TokenId>(shuffled.begin() + 3, shuffled.begin() + 7));
}
