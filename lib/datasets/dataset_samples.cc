#include <algorithm>
#include <array>
#include <ctime>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/join.h"
#include "datasets/dataset.h"

namespace kvcal {
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

[[noreturn]] void fail_without_template(const std::vector<std::string>& text_keys) {
  fail(
      "the record is a conversation and the model has no chat template; put chat_template.jinja "
      "into the model's folder, or ",
      text_keys.empty()
          ? "use a data set of 'text' or 'input_ids'"
          : "read one of its columns as text: --text-column " +
                join(text_keys, ", or ", [](const std::string& key) { return "'" + key + "'"; }));
}

std::string render(const Json& messages, const ChatFormat& chat) {
  return chat.render(messages, /*add_generation_prompt=*/false, /*more=*/{}, calibration_clock);
}

/// Takes images, audio and video out of messages, of which the model runs the text alone; the
/// placeholders that templates write for them stand for embeddings that are not there. Returns
/// their number.
int64_t drop_media(Json& messages) {
  constexpr std::array<std::string_view, 8> kMedia{"image",     "image_url",  "input_image",
                                                   "video",     "video_url",  "audio",
                                                   "audio_url", "input_audio"};
  const auto is_media = [&](const Json& part) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    return part.is_object() && type != part.end() && type->is_string() &&
           std::ranges::find(kMedia, type->get_ref<const std::string&>()) != kMedia.end();
  };
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

/// Ids of one record, all of them; index: its place in the data set.
std::vector<TokenId> ids_of(const Dataset& dataset, int64_t index, Record record,
                            const Tokenizer* tokenizer, const ChatFormat* chat) {
  if (auto* ids = std::get_if<std::vector<TokenId>>(&record.content)) return std::move(*ids);
  if (!tokenizer)
    fail(
        "the record is not tokenized and there is no tokenizer; give the model's folder one, or "
        "use a data "
        "set of 'input_ids'");
  if (const auto* messages = std::get_if<Json>(&record.content)) {
    if (messages->empty()) return {};
    if (!chat) fail_without_template(dataset.text_keys(index));
    return tokenizer->encode(render(*messages, *chat), /*add_special_tokens=*/false);
  }
  return tokenizer->encode(std::get<std::string>(record.content), /*add_special_tokens=*/false);
}

void check_ids(const std::vector<TokenId>& ids, int64_t vocab_size, bool is_given) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    if (is_given)
      fail("input_ids[", i, "] is ", ids[i], ", the model's vocabulary has ", vocab_size, " ids");
    fail("the tokenizer gives id ", ids[i], ", the model's vocabulary has ", vocab_size,
         " ids; is this the model's own tokenizer?");
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
  std::string message = std::to_string(options.num_calibration_samples) +
                        " samples were asked for, the data set has " + std::to_string(records) +
                        " records";
  if (dropped > 0) message += ", of which " + std::to_string(dropped) + " are empty";
  diagnostics.warn(message + ": " + std::to_string(kept) + " samples are used");
}

}  // namespace

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

std::vector<Sample> read_samples(const Dataset& dataset, const Tokenizer* tokenizer,
                                 const ChatFormat* chat, int64_t vocab_size,
                                 const SampleOptions& options, Diagnostics& diagnostics) {
  check_options(options);
  const int64_t wanted = std::min(options.num_calibration_samples, dataset.size());
  const auto longest = static_cast<size_t>(options.max_seq_length);
  const std::vector<int64_t> order = reading_order(dataset, options.shuffle_seed);
  dataset.will_read(std::span(order).first(static_cast<size_t>(wanted)));
  std::vector<Sample> samples;
  int64_t dropped = 0, empty_since = 0, media = 0;
  for (const int64_t index : order) {
    throw_if_interrupted();
    if (std::ssize(samples) == options.num_calibration_samples) break;
    Record record = dataset.record(index);
    const std::string place = record.place;
    const bool is_given = std::holds_alternative<std::vector<TokenId>>(record.content);
    if (auto* messages = std::get_if<Json>(&record.content)) media += drop_media(*messages);
    std::vector<TokenId> ids = in_context(place, [&] {
      std::vector<TokenId> all = ids_of(dataset, index, std::move(record), tokenizer, chat);
      check_ids(all, vocab_size, is_given);
      return all;
    });
    if (ids.size() > longest) ids.resize(longest);
    if (!ids.empty()) {
      samples.push_back({index, std::move(ids)});
      empty_since = 0;
    } else if (++dropped, ++empty_since > kMostEmpty) {
      fail(place, ": ", kMostEmpty, " records in a row are empty; is it the right data set?");
    }
    diagnostics.progress("tokenizing", std::ssize(samples), wanted, "samples");
  }
  if (samples.empty())
    fail("the data set gives no sample: all of its ", dataset.size(), " records are empty");
  if (media > 0)
    diagnostics.warn("left " + std::to_string(media) +
                     " images, audio and video parts out of the messages: only text is run");
  warn_of_missing(options, dataset.size(), std::ssize(samples), dropped, diagnostics);
  return samples;
}

}  // namespace kvcal
