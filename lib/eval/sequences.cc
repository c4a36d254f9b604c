#include "eval/sequences.h"

#include <algorithm>

#include "core/usage_error.h"
#include "datasets/dataset.h"

namespace kvcal {
namespace {

std::vector<ScoredSequence> windows_of(const std::filesystem::path& path,
                                       const std::vector<TokenId>& ids,
                                       const SequenceOptions& options) {
  const auto length = static_cast<size_t>(options.max_seq_length);
  const auto stride = options.stride == 0 ? length : static_cast<size_t>(options.stride);
  std::vector<ScoredSequence> windows;
  for (size_t begin = 0, scored = 0; scored < ids.size(); begin += stride) {
    if (std::ssize(windows) == options.num_sequences) break;
    const size_t end = std::min(begin + length, ids.size());
    const auto at = [&](size_t i) { return ids.begin() + static_cast<std::ptrdiff_t>(i); };
    // The first token of a window has no context there.
    windows.push_back({{at(begin), at(end)},
                       std::max<size_t>(scored - begin, 1),
                       path.string() + ": window of tokens " + std::to_string(begin) + " to " +
                           std::to_string(end - 1)});
    scored = end;
  }
  return windows;
}

/// The text, without that of the records to skip: a calibration's samples are records, too. Empty
/// where all others are.
std::string text_of(const Dataset& dataset, const SequenceOptions& options) {
  if (options.num_skipped == 0) return dataset.whole_text();
  const std::vector<int64_t> order = reading_order(dataset, options.shuffle_seed);
  dataset.will_read(order);
  const auto is_empty = [&](size_t place) {
    return dataset.joined_text(std::span(order).subspan(place, 1)).empty();
  };
  size_t begin = 0;
  for (int64_t left = options.num_skipped; begin < order.size(); ++begin)
    if (!is_empty(begin) && left-- == 0) break;
  return dataset.joined_text(std::span(order).subspan(begin));
}

}  // namespace

std::vector<ScoredSequence> read_sequences(const std::filesystem::path& path,
                                           const std::filesystem::path& tokenizer_folder,
                                           int64_t vocab_size, const SequenceOptions& options,
                                           Diagnostics& diagnostics) {
  if (options.stride > options.max_seq_length)
    fail_usage("the stride is ", options.stride, ", more than the ",
               counted(options.max_seq_length, "token"),
               " of a window: tokens between windows would not be scored");
  const auto dataset = open_dataset(path, {.records = options.records});
  const auto first = first_record(*dataset, options.records.skip);
  if (std::holds_alternative<std::string>(first.content))
    return windows_of(
        path, make_tokenizer(tokenizer_folder)->encode(text_of(*dataset, options), true), options);
  if (first.embedded)
    fail(path.string(), ": holds samples with images, which are calibrated on and not evaluated");
  if (options.stride != 0)
    fail(path.string(), ": a stride needs text that windows slide over, these are ",
         std::holds_alternative<Json>(first.content) ? "chats" : "lists of ids");
  const bool is_chat = std::holds_alternative<Json>(first.content);
  const auto tokenizer = is_chat ? make_tokenizer(tokenizer_folder) : nullptr;
  const auto chat =
      is_chat ? ChatFormat::from_folder(tokenizer_folder, options.records.chat) : std::nullopt;
  const SampleOptions samples{.num_calibration_samples = std::min(
                                  options.num_skipped + options.num_sequences, dataset->size()),
                              .max_seq_length = options.max_seq_length,
                              .shuffle_seed = options.shuffle_seed,
                              .skip = options.records.skip};
  std::vector<ScoredSequence> sequences;
  int64_t left_to_skip = options.num_skipped;
  for (Sample& sample : read_samples(*dataset, tokenizer.get(), chat ? &*chat : nullptr, vocab_size,
                                     samples, diagnostics))
    if (left_to_skip-- <= 0)
      sequences.push_back(
          {std::move(sample.ids), 1, path.string() + ": record " + std::to_string(sample.index)});
  return sequences;
}

}  // namespace kvcal
