#include "ranks/ranked_forward.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/byte_stream.h"
#include "core/error.h"
#include "forward/divided_forward.h"
#include "forward/layer_forward.h"
#include "ranks/communicator.h"

namespace kvcal {
namespace {

/// Limit of swaps; each takes about the square of the number of samples.
constexpr int kMaxSwaps = 100;
/// Fraction of an even share below which no swap is searched.
constexpr double kEvenEnough = 1e-3;

/// Load as fractions of an even share, so that tokens and work are comparable.
struct Load {
  double tokens = 0.0, work = 0.0;
  double most() const { return std::max(tokens, work); }
};
Load operator+(Load a, Load b) {
  return {a.tokens + b.tokens, a.work + b.work};
}
Load operator-(Load a, Load b) {
  return {a.tokens - b.tokens, a.work - b.work};
}

class Balancer {
 public:
  Balancer(std::span<const int64_t> lengths, const SampleWork& work, int ranks)
      : loads_(static_cast<size_t>(ranks)), rank_of_(lengths.size()) {
    double tokens = 0.0, flop = 0.0;
    for (const int64_t length : lengths) {
      tokens += static_cast<double>(length);
      flop += work.of(length);
    }
    for (const int64_t length : lengths)
      samples_.push_back(
          {static_cast<double>(length) * ranks / tokens, work.of(length) * ranks / flop});
  }

  std::vector<int> run() {
    place_largest_first();
    for (int i = 0; i < kMaxSwaps && improve(); ++i) {
    }
    return rank_of_;
  }

 private:
  Load& load_of(size_t sample) { return loads_[static_cast<size_t>(rank_of_[sample])]; }

  void place_largest_first() {
    std::vector<size_t> order(samples_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(
        order, [&](size_t a, size_t b) { return samples_[a].work > samples_[b].work; });
    for (const size_t sample : order) {
      const auto least = std::ranges::min_element(
          loads_, {}, [](const Load& load) { return load.tokens + load.work; });
      rank_of_[sample] = static_cast<int>(least - loads_.begin());
      *least = *least + samples_[sample];
    }
  }

  /// Makes the best swap of a sample of the most loaded rank with one of another rank, or with
  /// none; false where no swap helps.
  bool improve() {
    const auto most = std::ranges::max_element(loads_, {}, &Load::most) - loads_.begin();
    const Load from = loads_[static_cast<size_t>(most)];
    double best = from.most();
    if (best <= 1.0 + kEvenEnough) return false;
    constexpr size_t kNothing = std::numeric_limits<size_t>::max();
    size_t given = kNothing, taken = kNothing, target = 0;
    const auto consider = [&](size_t sample, size_t other, size_t rank) {
      const Load moved = other == kNothing ? samples_[sample] : samples_[sample] - samples_[other];
      const double after = std::max((from - moved).most(), (loads_[rank] + moved).most());
      if (after >= best) return;
      best = after;
      given = sample;
      taken = other;
      target = rank;
    };
    for (size_t sample = 0; sample < samples_.size(); ++sample) {
      if (rank_of_[sample] != most) continue;
      for (size_t rank = 0; rank < loads_.size(); ++rank)
        if (static_cast<std::ptrdiff_t>(rank) != most) consider(sample, kNothing, rank);
      for (size_t other = 0; other < samples_.size(); ++other)
        if (rank_of_[other] != most) consider(sample, other, static_cast<size_t>(rank_of_[other]));
    }
    if (given == kNothing) return false;
    move(given, static_cast<int>(target));
    if (taken != kNothing) move(taken, static_cast<int>(most));
    return true;
  }

  void move(size_t sample, int rank) {
    load_of(sample) = load_of(sample) - samples_[sample];
    rank_of_[sample] = rank;
    load_of(sample) = load_of(sample) + samples_[sample];
  }

  std::vector<Load> samples_, loads_;
  std::vector<int> rank_of_;
};

bool is_of_routed_expert(Role role) {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown ||
         role == Role::kExpertGateUp;
}

}  // namespace

SampleWork sample_work(const ModelConfig& config, const Weights& weights) {
  SampleWork work{.per_token = 0.0, .per_pair = 0.0};
  const MoeConfig& moe = config.moe;
  const double routed = moe.num_experts == 0 ? 1.0
                                             : static_cast<double>(moe.experts_per_token) /
                                                   static_cast<double>(moe.num_experts);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [role, tensor, is_scale] : weights.tensors(layer))
      if (tensor.shape.rank() >= 2 && !is_scale && !is_looked_up(role))
        work.per_token += 2.0 * static_cast<double>(element_count(tensor.shape)) *
                          (is_of_routed_expert(role) ? routed : 1.0);
    // Scores and weighted sums, for the half of all pairs that a causal mask leaves.
    if (config.has_attention(layer))
      work.per_pair += static_cast<double>(config.attention(layer).heads *
                                           (config.cache(layer).k_dim + config.cache(layer).v_dim));
  }
  return work;
}

SampleAssignment assign_samples(std::span<const int64_t> lengths, const SampleWork& work,
                                int ranks) {
  KVCAL_CHECK(ranks > 0);
  SampleAssignment assignment;
  assignment.rank_of.resize(lengths.size());
  assignment.samples_of.resize(static_cast<size_t>(ranks));
  if (ranks > 1 && !lengths.empty()) assignment.rank_of = Balancer(lengths, work, ranks).run();
  for (size_t sample = 0; sample < lengths.size(); ++sample)
    assignment.samples_of[static_cast<size_t>(assignment.rank_of[sample])].push_back(sample);
  return assignment;
}

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
