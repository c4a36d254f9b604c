#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <ctime>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "datasets/dataset.h"

namespace kvcal {
namespace {

using Uint128 = unsigned __int128;

/// Spreads a seed over 128 bits of pool and draws words from it.
/// Source: NumPy `SeedSequence` (numpy/random/bit_generator.pyx), after M. O'Neill's seed_seq_fe.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    uint32_t multiplier = 0x43b0d7e5;
    // A seed has at most two 32-bit words, fewer than the pool: the rest is filled with zeros.
    const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed),
                                          static_cast<uint32_t>(seed >> 32), 0, 0};
    const auto hash = [&](uint32_t value) {
      value ^= multiplier;
      multiplier *= 0x931e8875;
      value *= multiplier;
      return value ^ (value >> 16);
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i]);
    for (size_t from = 0; from < pool_.size(); ++from) {
      for (size_t to = 0; to < pool_.size(); ++to) {
        if (from == to) continue;
        const uint32_t mixed = 0xca01f9dd * pool_[to] - 0x4973f715 * hash(pool_[from]);
        pool_[to] = mixed ^ (mixed >> 16);
      }
    }
  }

  /// The first four 64-bit words, each from two 32-bit ones, low first.
  std::array<uint64_t, 4> words() const {
    std::array<uint64_t, 4> result{};
    uint32_t multiplier = 0x8b51f9dd;
    for (size_t i = 0; i < 2 * result.size(); ++i) {
      uint32_t value = pool_[i % pool_.size()] ^ multiplier;
      multiplier *= 0x58f38ded;
      value *= multiplier;
      value ^= value >> 16;
      result[i / 2] |= uint64_t{value} << (32 * (i % 2));
    }
    return result;
  }

 private:
  std::array<uint32_t, 4> pool_{};
};

/// PCG XSL RR 128/64. Source: NumPy `PCG64`, after M. O'Neill, "PCG: A Family of Simple Fast
/// Space-Efficient Statistically Good Algorithms for Random Number Generation".
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto words = SeedSequence(seed).words();
    increment_ = (wide(words[2], words[3]) << 1) | 1;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  /// Half of a 64-bit draw, the low half first.
  uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const uint64_t both = next64();
    has_half_ = true;
    half_ = static_cast<uint32_t>(both >> 32);
    return static_cast<uint32_t>(both);
  }

  /// Evenly distributed in [0, most]. Source: NumPy `random_interval`, which masks a draw to the
  /// bits of most and draws again where that is too large.
  uint32_t bounded(uint32_t most) {
    if (most == 0) return 0;
    const uint32_t mask = UINT32_MAX >> std::countl_zero(most);
    uint32_t value = next32() & mask;
    while (value > most) value = next32() & mask;
    return value;
  }

 private:
  static Uint128 wide(uint64_t high, uint64_t low) { return (Uint128{high} << 64) | low; }
  void step() { state_ = state_ * wide(2549297995355413924u, 4865540595714422341u) + increment_; }
  uint64_t next64() {
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    return std::rotr(high ^ low, static_cast<int>(high >> 58));
  }

  Uint128 state_ = 0, increment_ = 0;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace

std::vector<int64_t> shuffled_indices(int64_t count, uint64_t seed) {
  constexpr int64_t kMost = int64_t{1} << 32;
  if (count < 0 || count > kMost)
    fail("a data set of ", counted(count, "record"), " cannot be shuffled, the limit is ", kMost);
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  Pcg64 random(seed);
  for (size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[random.bounded(static_cast<uint32_t>(i))]);
  return order;
}

namespace {

/// No data set that somebody means has so many empty records in a row; a small file may have
/// billions.
constexpr int64_t kMostEmpty = 1'000'000;

/// The clock of strftime_now in templates during calibration: the same input must give the same
/// bytes on any day. The date is the one Llama 3.1's template falls back to where it has no clock.
std::tm calibration_clock() {
  std::tm date{};
  date.tm_year = 2024 - 1900;
  date.tm_mon = 6;
  date.tm_mday = 26;
  date.tm_wday = 5;
  date.tm_yday = 207;
  return date;
}

/// Takes images, audio and video out of messages, of which the model runs the text alone; the
/// placeholders that templates write for them stand for embeddings that are not there. Returns
/// their number.
int64_t drop_media(Json& messages) {
  int64_t dropped = 0;
  for (Json& message : messages) {
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) continue;
    Json kept = Json::array();
    for (const Json& part : *content)
      if (!is_media(part)) kept.push_back(part);
    if (kept.size() == content->size()) continue;
    dropped += static_cast<int64_t>(content->size() - kept.size());
    *content = kept.empty() ? Json("") : std::move(kept);
  }
  return dropped;
}

void check_ids(const std::vector<TokenId>& ids, int64_t vocab_size, bool is_given) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    if (is_given)
      fail("input_ids[", i, "] is ", ids[i], ", the model's vocabulary has ",
           counted(vocab_size, "id"));
    fail("the tokenizer gives id ", ids[i], ", the model's vocabulary has ",
         counted(vocab_size, "id"), "; is this the model's own tokenizer?");
  }
}

void check_options(const SampleOptions& options) {
  if (options.num_calibration_samples < 1)
    fail("num_calibration_samples is ", options.num_calibration_samples, ", expected at least 1");
  if (options.max_seq_length < 1)
    fail("max_seq_length is ", options.max_seq_length, ", expected at least 1");
}

void warn_of_missing(const SampleOptions& options, int64_t records, int64_t kept, int64_t dropped,
                     Diagnostics& diagnostics) {
  if (kept == options.num_calibration_samples) {
    if (dropped > 0)
      diagnostics.warn("skipped " + std::to_string(dropped) + " empty records of the data set");
    return;
  }
  std::string message = counted(options.num_calibration_samples, "sample") +
                        " were asked for, the data set has " + counted(records, "record");
  if (dropped > 0) message += ", of which " + std::to_string(dropped) + " are empty";
  diagnostics.warn(message + ": " + counted(kept, "sample") + (kept == 1 ? " is" : " are") +
                   " used");
}

}  // namespace

SkipLimit parse_skip_limit(const std::string& text) {
  if (text.find_first_of("%.") != std::string::npos) return {.part = parse_part(text)};
  int64_t records = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, records);
  if (error != std::errc() || parsed != end || records < 0)
    fail("found '", text, "', expected a number of records such as 10, or a part such as 1%");
  return {.records = records};
}

Record first_record(const Dataset& dataset, const SkipLimit& skip) {
  for (int64_t index = 0;; ++index) {
    try {
      return dataset.record(index);
    } catch (const SystemError&) {
      throw;
    } catch (const Error&) {
      if (index >= std::min(skip.of(dataset.size()), dataset.size() - 1)) throw;
    }
  }
}

std::vector<int64_t> reading_order(const Dataset& dataset, const std::optional<uint64_t>& seed) {
  if (seed) return shuffled_indices(dataset.size(), *seed);
  std::vector<int64_t> order(static_cast<size_t>(dataset.size()));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> lengths_of(std::span<const Sample> samples) {
  std::vector<int64_t> lengths;
  for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.ids));
  return lengths;
}

int64_t tokens_of(std::span<const Sample> samples) {
  int64_t tokens = 0;
  for (const Sample& sample : samples) tokens += std::ssize(sample.ids);
  return tokens;
}

int64_t longest_of(std::span<const Sample> samples) {
  size_t longest = 0;
  for (const Sample& sample : samples) longest = std::max(longest, sample.ids.size());
  return static_cast<int64_t>(longest);
}

namespace {

/// An error's message without the places before it.
std::string reason_of(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

/// Records that a warning speaks of, and its words for the first of them.
struct Noted {
  int64_t count = 0;
  std::string first = {};

  void add(const Record& record, int64_t index, const std::string& what) {
    if (count++ == 0) first = record.place + " (record " + std::to_string(index) + "): " + what;
  }
};

/// Reads, renders, tokenizes and cuts records until there are enough samples.
class SampleReader {
 public:
  SampleReader(const Dataset& dataset, const Tokenizer* tokenizer, const ChatFormat* chat,
               int64_t vocab_size, const SampleOptions& options, Diagnostics& diagnostics)
      : dataset_(dataset),
        tokenizer_(tokenizer),
        chat_(chat),
        vocab_size_(vocab_size),
        options_(options),
        most_skipped_(options.skip.of(dataset.size())),
        diagnostics_(diagnostics) {}

  std::vector<Sample> run() {
    const int64_t wanted = std::min(options_.num_calibration_samples, dataset_.size());
    const std::vector<int64_t> order = reading_order(dataset_, options_.shuffle_seed);
    dataset_.will_read(std::span(order).first(static_cast<size_t>(wanted)));
    for (const int64_t index : order) {
      throw_if_interrupted();
      if (std::ssize(samples_) == options_.num_calibration_samples) break;
      add(index);
      diagnostics_.progress("tokenizing", std::ssize(samples_), wanted, "samples");
    }
    if (samples_.empty())
      fail("the data set gives no sample: of its ", counted(dataset_.size(), "record"),
           ", each is empty", skipped_.count > 0 ? " or cannot be used" : "");
    warn();
    return std::move(samples_);
  }

  SkippedRecords skipped() const { return skipped_; }

 private:
  void add(int64_t index) {
    std::string place;
    Sample sample{.index = index, .ids = {}};
    try {
      sample = read(index, place);
    } catch (const SystemError&) {
      throw;
    } catch (const Error& error) {
      if (most_skipped_ == 0) throw;
      return skip(error);
    }
    if (!sample.ids.empty()) {
      samples_.push_back(std::move(sample));
      empty_since_ = 0;
    } else if (++dropped_, ++empty_since_ > kMostEmpty) {
      fail(place, ": ", kMostEmpty, " records in a row are empty; is it the right data set?");
    }
  }

  /// The first max_seq_length tokens of a record.
  Sample read(int64_t index, std::string& place) {
    Record record = dataset_.record(index);
    place = record.place;
    const bool is_given = std::holds_alternative<std::vector<TokenId>>(record.content);
    const int64_t media = std::holds_alternative<Json>(record.content)
                              ? drop_media(std::get<Json>(record.content))
                              : 0;
    const std::shared_ptr<EmbeddedTokens> embedded = std::move(record.embedded);
    Sample sample{.index = index, .ids = {}, .embedded = embedded};
    in_context(place, [&] {
      sample.ids = ids_of(index, std::move(record));
      // Placeholders of images may lie behind the vocabulary; nothing reads their embeddings.
      if (embedded)
        for (const int32_t position : embedded->positions)
          if (TokenId& id = sample.ids[static_cast<size_t>(position)]; id >= vocab_size_) id = 0;
      check_ids(sample.ids, vocab_size_, is_given);
    });
    const auto longest = static_cast<size_t>(options_.max_seq_length);
    if (sample.ids.size() > longest) sample.ids.resize(longest);
    if (embedded) embedded->cut(std::ssize(sample.ids));
    media_ += media;
    return sample;
  }

  std::vector<TokenId> ids_of(int64_t index, Record record) {
    if (auto* ids = std::get_if<std::vector<TokenId>>(&record.content)) return std::move(*ids);
    if (!tokenizer_)
      fail(
          "the record is not tokenized, and the first one is, so no tokenizer was loaded; give "
          "'input_ids' in all records or in none");
    const auto* messages = std::get_if<Json>(&record.content);
    if (!messages)
      return tokenizer_->encode(std::get<std::string>(record.content),
                                /*add_special_tokens=*/false);
    if (messages->empty()) return {};
    return tokenizer_->encode(text_of(*messages, record, index), /*add_special_tokens=*/false);
  }

  std::string text_of(const Json& messages, const Record& record, int64_t index) {
    if (!chat_) {
      has_joined_ = true;
      return joined_texts(messages);
    }
    std::string text = chat_->render(messages, /*add_generation_prompt=*/false, record.variables,
                                     calibration_clock);
    if (const std::string what = chat_->first_unserved(messages); !what.empty())
      unserved_.add(record, index, what);
    if (const int64_t lost = first_unrendered(messages, text); lost >= 0)
      lost_.add(record, index,
                "messages[" + std::to_string(lost) + "], of role '" +
                    messages[static_cast<size_t>(lost)].value("role", "") + "'");
    return text;
  }

  void skip(const Error& error) {
    const std::string& message = error.message();
    if (skipped_.count == 0) skipped_.first = message;
    ++skipped_.count;
    ++skipped_.reasons[reason_of(message)];
    if (skipped_.count > most_skipped_)
      fail(counted(skipped_.count, "record"),
           " cannot be used, and --skip-bad-records lets at most ", most_skipped_, " of ",
           dataset_.size(), " be passed over; the last: ", message);
  }

  void warn() const {
    if (media_ > 0)
      diagnostics_.warn("left " + std::to_string(media_) +
                        " images, audio and video parts out of the messages: only text is run");
    if (has_joined_)
      diagnostics_.note(
          "the model has no chat template: the texts of each conversation are joined by empty "
          "lines (--chat-template FILE renders them)");
    if (lost_.count > 0)
      diagnostics_.warn("the chat template leaves out text of " + std::to_string(lost_.count) +
                        (lost_.count == 1 ? " record: " : " records, the first: ") + lost_.first);
    if (unserved_.count > 0)
      diagnostics_.warn("the chat template gets not all of " + std::to_string(unserved_.count) +
                        (unserved_.count == 1 ? " record" : " records") +
                        ", as servers do not pass it" +
                        (unserved_.count == 1 ? ": " : ", the first: ") + unserved_.first);
    if (skipped_.count > 0)
      diagnostics_.warn("passed over " + std::to_string(skipped_.count) +
                        (skipped_.count == 1 ? " record that" : " records that") +
                        " cannot be used, the first: " + skipped_.first);
    warn_of_missing(options_, dataset_.size(), std::ssize(samples_), dropped_, diagnostics_);
  }

  const Dataset& dataset_;
  const Tokenizer* tokenizer_;
  const ChatFormat* chat_;
  int64_t vocab_size_;
  const SampleOptions& options_;
  int64_t most_skipped_;
  Diagnostics& diagnostics_;
  std::vector<Sample> samples_;
  SkippedRecords skipped_;
  int64_t dropped_ = 0, empty_since_ = 0, media_ = 0;
  bool has_joined_ = false;
  Noted lost_;      ///< with messages that the template leaves out
  Noted unserved_;  ///< with what the template would read and does not get
};

}  // namespace

std::vector<Sample> read_samples(const Dataset& dataset, const Tokenizer* tokenizer,
                                 const ChatFormat* chat, int64_t vocab_size,
                                 const SampleOptions& options, Diagnostics& diagnostics,
                                 SkippedRecords* skipped) {
  check_options(options);
  SampleReader reader(dataset, tokenizer, chat, vocab_size, options, diagnostics);
  std::vector<Sample> samples = reader.run();
  if (skipped) *skipped = reader.skipped();
  return samples;
}

}  // namespace kvcal
