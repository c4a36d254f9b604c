#include "ranks/ranked_forward.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/byte_stream.h"
#include "forward/merged_observation.h"
#include "forward/observation_bytes.h"
#include "ranks/agreement.h"

namespace kvcal {

RankedForward::RankedForward(std::unique_ptr<LayerForward> local, Communicator& ranks,
                             SampleAssignment assignment, std::span<const int64_t> lengths,
                             RankLayerBytes* bytes)
    : local_(std::move(local)),
      ranks_(ranks),
      assignment_(std::move(assignment)),
      num_tokens_(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
      bytes_(bytes) {
  KVCAL_CHECK(assignment_.samples_of.size() == static_cast<size_t>(ranks.size()));
  KVCAL_CHECK(lengths.size() == assignment_.num_samples());
  const auto& own = assignment_.samples_of[static_cast<size_t>(ranks.rank())];
  KVCAL_CHECK((local_ == nullptr) == own.empty());
}

RankedForward::~RankedForward() {
  if (bytes_) bytes_->leave();
}

LayerResult RankedForward::run(const LayerCall& call) {
  if (ranks_.size() == 1) return local_->run(call);
  const int64_t layer = call.layer;
  ranks_.watch().set_stage(layer < 0 ? "the input of lm_head" : "layer " + std::to_string(layer));
  const auto leave = [this] {
    if (bytes_) bytes_->leave();
  };
  std::vector<std::vector<std::byte>> told;
  try {
    told = agree(
        ranks_,
        [&] {
          ByteWriter out;
          if (!local_) return out.take();
          const LayerResult own = local_->run(call);
          out.put(bytes_ && layer >= 0 ? bytes_->hash(layer) : uint64_t{0});
          out.put_bytes(to_bytes(own));
          return out.take();
        },
        leave);
  } catch (...) {
    leave();
    throw;
  }
  std::vector<std::optional<LayerResult>> parts(told.size());
  std::vector<uint64_t> hashes(told.size());
  for (size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].empty()) continue;
    in_context(ranks_.name_of(static_cast<int>(rank)), [&] {
      ByteReader in(told[rank]);
      hashes[rank] = in.get<uint64_t>();
      parts[rank] =
          layer_result_from(call.pass, std::span<const std::byte>(told[rank]).subspan(in.offset()));
    });
    told[rank] = {};
  }
  check_layer_bytes(layer, hashes);
  return merged(std::move(parts), assignment_);
}

/// Throws SharedError where ranks packed different bytes: they would calibrate another model.
void RankedForward::check_layer_bytes(int64_t layer, std::span<const uint64_t> hashes) const {
  const auto first = std::ranges::find_if(hashes, [](uint64_t hash) { return hash != 0; });
  for (size_t rank = 0; rank < hashes.size(); ++rank)
    if (hashes[rank] != 0 && hashes[rank] != *first)
      throw SharedError(ranks_.name_of(static_cast<int>(rank)) + " sees other bytes of layer " +
                        std::to_string(layer) + " than " +
                        ranks_.name_of(static_cast<int>(first - hashes.begin())) +
                        "; expected the same checkpoint on every host");
}

void RankedForward::request(const ObservationRequest& request) {
  if (!local_) return;
  // Samples of a rank ascend, so those that are compared are its first.
  ObservationRequest own = request;
  if (request.compared_samples)
    own.compared_samples = std::ranges::count_if(
        assignment_.samples_of[static_cast<size_t>(ranks_.rank())],
        [&](size_t sample) { return std::cmp_less(sample, *request.compared_samples); });
  local_->request(own);
}

int64_t RankedForward::sample_of(int64_t own) const {
  return static_cast<int64_t>(
      assignment_.samples_of[static_cast<size_t>(ranks_.rank())].at(static_cast<size_t>(own)));
}

void RankedForward::show_hidden(HiddenSink* sink) {
  if (!local_) return;
  // Kept while the samples may still release rows.
  if (sink && sink != sink_) {
    own_sink_ =
        std::make_unique<RenumberedSink>(*sink, [this](int64_t own) { return sample_of(own); });
    sink_ = sink;
  }
  local_->show_hidden(sink ? own_sink_.get() : nullptr);
}

void RankedForward::restore_hidden(int64_t next_layer, const HiddenSource& source) {
  if (!local_) return;
  local_->restore_hidden(next_layer,
                         [&](int64_t own, std::span<float> rows) { source(sample_of(own), rows); });
}

void RankDiagnostics::warn(const std::string& message) {
  all_.warn(ranks_.size() == 1 ? message : ranks_.name_of(ranks_.rank()) + ": " + message);
}

void RankDiagnostics::inform(const std::string& lines) {
  if (ranks_.rank() == 0) all_.inform(lines);
}

void RankDiagnostics::progress(std::string_view stage, int64_t done, int64_t total,
                               std::string_view unit) {
  if (ranks_.rank() != 0) return;
  // In floating point, since both may be large; the last step must reach total.
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
  all_.progress(
      stage,
      done == total ? all_tokens_ : static_cast<int64_t>(share * static_cast<double>(all_tokens_)),
      all_tokens_, unit);
}

}  // namespace kvcal
