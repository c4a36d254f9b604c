#include "forward/divided_forward.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "core/error.h"

namespace kvcal {
namespace {

void add(MagnitudeHistogram& sum, const MagnitudeHistogram& more) {
  for (size_t bin = 0; bin < sum.counts.size(); ++bin) sum.counts[bin] += more.counts[bin];
}

/// Copies the ranges [own samples, width] of one part to their places in [all samples, width].
void place(std::vector<ObservedRange>& all, std::span<const ObservedRange> own,
           std::span<const size_t> samples, size_t width) {
  if (own.size() != samples.size() * width)
    fail("has ", counted(own.size(), "range"), ", expected ", counted(samples.size(), "sample"),
         " of ", width);
  for (size_t i = 0; i < samples.size(); ++i)
    std::ranges::copy(own.subspan(i * width, width),
                      all.begin() + static_cast<std::ptrdiff_t>(samples[i] * width));
}

/// Channels of which a part saw the extremes; 0: of none.
size_t channels_of(const KvObservation& part, size_t samples) {
  return samples == 0 ? 0 : part.channels.size() / samples;
}

/// Adds K, V or Q of a part, the first or a later one, to those of all samples; without heads where
/// the layer has no attention.
void add_part(KvObservation& all, const KvObservation& part, std::span<const size_t> samples,
              size_t num_samples, bool is_first) {
  const size_t heads = part.histograms.size();
  if (is_first) {
    all.histograms.resize(heads);
    all.ranges.assign(num_samples * heads, kEmptyRange);
  }
  if (heads != all.histograms.size())
    fail("has ", counted(heads, "head"), ", expected ", all.histograms.size());
  place(all.ranges, part.ranges, samples, heads);
  for (size_t head = 0; head < heads; ++head) add(all.histograms[head], part.histograms[head]);
  if (is_first) all.channels.assign(num_samples * channels_of(part, samples.size()), kEmptyRange);
  place(all.channels, part.channels, samples,
        num_samples == 0 ? 0 : all.channels.size() / num_samples);
  if (all.positions.size() < part.positions.size()) all.positions.resize(part.positions.size());
  for (size_t bucket = 0; bucket < part.positions.size(); ++bucket)
    all.positions[bucket].fold(part.positions[bucket]);
  if (all.kinds.empty()) all.kinds.resize(part.kinds.size());
  for (size_t kind = 0; kind < part.kinds.size(); ++kind) all.kinds[kind].fold(part.kinds[kind]);
}

/// Folds magnitudes of the same channels into all, which is empty before the first part.
void fold_channels(const std::vector<float>& part, std::vector<float>& all) {
  if (all.empty()) all.resize(part.size(), 0.0f);
  if (part.size() != all.size())
    fail("has ", counted(part.size(), "channel"), ", expected ", all.size());
  for (size_t i = 0; i < part.size(); ++i) all[i] = std::max(all[i], part[i]);
}

class LinearMerger {
 public:
  explicit LinearMerger(size_t num_samples) : num_samples_(num_samples) {}

  void add_part(const LinearObservation& part, std::span<const size_t> samples) {
    const auto [at, is_new] = all_.try_emplace({part.role, part.index});
    LinearObservation& seen = at->second;
    if (is_new) {
      seen.role = part.role;
      seen.index = part.index;
      if (!part.ranges.empty()) seen.ranges.assign(num_samples_, kEmptyRange);
    }
    if (seen.ranges.empty() != part.ranges.empty())
      fail("shows samples of a Linear's input where another part does not");
    if (!part.ranges.empty()) place(seen.ranges, part.ranges, samples, 1);
    seen.amax.value = std::max(seen.amax.value, part.amax.value);
    seen.nonfinite += part.nonfinite;
    seen.tokens += part.tokens;
    add(seen.histogram, part.histogram);
  }
  void add_parts(const std::vector<LinearObservation>& parts, std::span<const size_t> samples) {
    for (const LinearObservation& part : parts) add_part(part, samples);
  }
  std::vector<LinearObservation> take() {
    std::vector<LinearObservation> linears;
    for (auto& [place, seen] : all_) linears.push_back(std::move(seen));
    return linears;
  }

 private:
  size_t num_samples_;
  std::map<std::pair<Role, int64_t>, LinearObservation> all_;  ///< by role, then index
};

/// Calls body with each existing part and its samples.
template <class Part, class Body>
void for_each_part(std::span<const std::optional<Part>> parts, const SampleParts& samples,
                   const Body& body) {
  KVCAL_CHECK(parts.size() == samples.samples_of.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& own = samples.samples_of[i];
    in_context(std::string(samples.name) + " " + std::to_string(i), [&] {
      if (parts[i].has_value() == own.empty())
        fail("saw ", parts[i] ? "something" : "nothing", ", but has ",
             counted(own.size(), "sample"));
      if (parts[i]) body(*parts[i], std::span<const size_t>(own));
    });
  }
}

size_t count_of(const SampleParts& samples) {
  size_t count = 0;
  for (const auto& own : samples.samples_of) count += own.size();
  return count;
}

LayerObservation merged_parts(std::span<const std::optional<LayerObservation>> parts,
                              const SampleParts& samples) {
  const size_t count = count_of(samples);
  LayerObservation all;
  LinearMerger linears(count);
  bool is_first = true;
  for_each_part(parts, samples, [&](const LayerObservation& part, auto own) {
    add_part(all.k, part.k, own, count, is_first);
    add_part(all.v, part.v, own, count, is_first);
    if (is_first && part.q) all.q.emplace();
    if (all.q && part.q) add_part(*all.q, *part.q, own, count, is_first);
    if (all.q.has_value() != part.q.has_value())
      fail("has queries where another part has none, or none where it has");
    if (part.channels) {
      if (!all.channels) all.channels.emplace();
      fold_channels(part.channels->k, all.channels->k);
      fold_channels(part.channels->v, all.channels->v);
    }
    if (!part.key_rows.empty()) {
      if (part.key_rows.size() != own.size())
        fail("has rows of K of ", counted(part.key_rows.size(), "sample"), ", expected ",
             own.size());
      all.key_rows.resize(count);
      for (size_t i = 0; i < own.size(); ++i) all.key_rows[own[i]] = part.key_rows[i];
    }
    linears.add_parts(part.linears, own);
    is_first = false;
  });
  all.linears = linears.take();
  return all;
}

LayerAdvance merged_parts(std::span<const std::optional<LayerAdvance>> parts,
                          const SampleParts& samples) {
  LayerAdvance all;
  LinearMerger linears(count_of(samples));
  for_each_part(parts, samples, [&](const LayerAdvance& part, auto own) {
    all.saturated.add(part.saturated);
    linears.add_parts(part.linears, own);
  });
  all.linears = linears.take();
  return all;
}

LinearObservation merged_parts(std::span<const std::optional<LinearObservation>> parts,
                               const SampleParts& samples) {
  LinearMerger linears(count_of(samples));
  for_each_part(parts, samples,
                [&](const LinearObservation& part, auto own) { linears.add_part(part, own); });
  std::vector<LinearObservation> all = linears.take();
  if (all.size() != 1)
    fail("the parts saw ", counted(all.size(), "input"), ", expected the same one");
  return std::move(all[0]);
}

SaturationCounts merged_parts(std::span<const std::optional<SaturationCounts>> parts,
                              const SampleParts& samples) {
  SaturationCounts all;
  for_each_part(parts, samples, [&](const SaturationCounts& part, auto) { all.add(part); });
  return all;
}

AttentionComparison merged_parts(std::span<const std::optional<AttentionComparison>> parts,
                                 const SampleParts& samples) {
  // The compared samples are the first of all, and so are those of each part.
  std::map<size_t, std::vector<std::vector<AttentionError>>> by_sample;
  for_each_part(parts, samples, [&](const AttentionComparison& part, auto own) {
    if (part.samples.size() > own.size())
      fail("compared ", counted(part.samples.size(), "sample"), ", but has ", own.size());
    for (size_t i = 0; i < part.samples.size(); ++i) by_sample[own[i]] = part.samples[i];
  });
  AttentionComparison all;
  for (auto& [sample, errors] : by_sample) {
    if (sample != all.samples.size())
      fail("no part compared sample ", all.samples.size(), ", expected the first ones");
    all.samples.push_back(std::move(errors));
  }
  return all;
}

/// Thrown in the other parts after one has failed; never leaves this file.
struct Stopped {};

}  // namespace

SampleParts SampleParts::behind_each_other(std::span<const size_t> counts) {
  SampleParts parts;
  size_t begin = 0;
  for (const size_t count : counts) {
    std::vector<size_t>& own = parts.samples_of.emplace_back(count);
    std::iota(own.begin(), own.end(), begin);
    begin += count;
  }
  return parts;
}

LayerResult merged(std::vector<std::optional<LayerResult>> parts, const SampleParts& samples) {
  const auto first = std::ranges::find_if(parts, [](const auto& part) { return part.has_value(); });
  KVCAL_CHECK(first != parts.end());
  const auto merged_as = [&]<class Result>(const Result&) -> LayerResult {
    std::vector<std::optional<Result>> typed(parts.size());
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i]) typed[i] = std::get<Result>(std::move(*parts[i]));
    return merged_parts(std::span<const std::optional<Result>>(typed), samples);
  };
  return std::visit(merged_as, **first);
}

/// Merges the progress of all parts, and ends their pass when one has failed.
class DividedForward::SharedDiagnostics {
 public:
  SharedDiagnostics(Diagnostics& diagnostics, size_t parts) : diagnostics_(diagnostics) {
    for (size_t i = 0; i < parts; ++i) parts_.push_back(std::make_unique<Part>(*this));
  }
  Diagnostics& part(size_t index) { return *parts_[index]; }

  std::atomic<bool> has_failed = false;

 private:
  struct Part : Diagnostics {
    explicit Part(SharedDiagnostics& owner) : shared(owner) {}
    void warn(const std::string& message) override {
      const std::lock_guard lock(shared.mutex_);
      // Devices of one kind warn of the same.
      if (shared.warned_.insert(message).second) shared.diagnostics_.warn(message);
    }
    void inform(const std::string& lines) override {
      const std::lock_guard lock(shared.mutex_);
      shared.diagnostics_.inform(lines);
    }
    void progress(std::string_view stage, int64_t now, int64_t all,
                  std::string_view unit) override {
      if (shared.has_failed) throw Stopped{};
      const std::lock_guard lock(shared.mutex_);
      done = now;
      total = all;
      int64_t sum = 0, whole = 0;
      for (const auto& part : shared.parts_) {
        sum += part->done;
        whole += part->total;
      }
      // The total is unknown until all parts have begun.
      if (std::ranges::all_of(shared.parts_, [](const auto& part) { return part->total > 0; }))
        shared.diagnostics_.progress(stage, sum, whole, unit);
    }
    SharedDiagnostics& shared;
    int64_t done = 0, total = 0;
  };

  Diagnostics& diagnostics_;
  std::mutex mutex_;
  std::set<std::string> warned_;
  std::vector<std::unique_ptr<Part>> parts_;
};

std::vector<size_t> DividedForward::divide(std::span<const int64_t> lengths, size_t ranges) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<size_t> begins{0};
  int64_t before = 0;
  for (size_t sample = 0; sample < lengths.size(); ++sample) {
    // A range begins with the first sample whose middle is past its share of the tokens.
    const auto begun = static_cast<int64_t>(begins.size());
    const int64_t middle = 2 * before + lengths[sample];
    if (begins.size() < ranges && sample > begins.back() &&
        middle * static_cast<int64_t>(ranges) >= 2 * total * begun)
      begins.push_back(sample);
    before += lengths[sample];
  }
  begins.push_back(lengths.size());
  return begins;
}

DividedForward::DividedForward(const ModelConfig& config, const Weights& weights,
                               std::span<Backend* const> backends,
                               std::span<const std::span<const TokenId>> samples,
                               const LayerwiseOptions& options, Diagnostics& diagnostics)
    : config_(config), weights_(weights), options_(options) {
  KVCAL_CHECK(!backends.empty() && !samples.empty());
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) lengths.push_back(static_cast<int64_t>(sample.size()));
  begins_ = divide(lengths, backends.size());
  const size_t count = begins_.size() - 1;
  backends_.assign(backends.begin(), backends.begin() + static_cast<int64_t>(count));
  diagnostics_ = std::make_unique<SharedDiagnostics>(diagnostics, count);
  parts_.resize(count);
  options_.longest_sample = std::max(options_.longest_sample, std::ranges::max(lengths));
  const std::vector<const EmbeddedTokens*> embedded = std::exchange(options_.embedded, {});
  run_parts(count, [&](size_t i) {
    LayerwiseOptions own = options_;
    if (!embedded.empty())
      own.embedded.assign(embedded.begin() + static_cast<int64_t>(begins_[i]),
                          embedded.begin() + static_cast<int64_t>(begins_[i + 1]));
    parts_[i] = std::make_unique<LayerwiseForward>(
        config, weights, *backends[i], samples.subspan(begins_[i], begins_[i + 1] - begins_[i]),
        own, diagnostics_->part(i));
  });
}

DividedForward::~DividedForward() = default;

void DividedForward::run_parts(size_t count, const std::function<void(size_t)>& body) {
  if (count == 1) return body(0);  // where the caller's own thread has what it set up
  std::vector<std::future<void>> running;
  for (size_t i = 0; i < count; ++i)
    running.push_back(std::async(std::launch::async, [&, i] {
      try {
        body(i);
      } catch (...) {
        diagnostics_->has_failed = true;
        throw;
      }
    }));
  std::exception_ptr error;
  for (std::future<void>& part : running) try {
      part.get();
    } catch (const Stopped&) {
      // Another part reports the reason.
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  if (error) std::rethrow_exception(error);
}

LayerResult DividedForward::run(const LayerCall& call) {
  std::span<const PackedLayer> layers;
  if (const std::optional<LayerParts> wanted = parts_[0]->parts_of(call)) {
    if (!layers_)
      layers_.emplace(weights_, config_, backends_, options_.compute_type, options_.layer_bytes,
                      request_);
    layers = layers_->bring(call.layer, *wanted);
  }
  const auto run_part = [&](size_t i) {
    return parts_[i]->run(call, layers.empty() ? nullptr : &layers[i]);
  };
  if (parts_.size() == 1) return run_part(0);
  std::vector<std::optional<LayerResult>> results(parts_.size());
  run_parts(parts_.size(), [&](size_t i) { results[i] = run_part(i); });
  std::vector<size_t> counts;
  for (size_t i = 0; i < parts_.size(); ++i) counts.push_back(begins_[i + 1] - begins_[i]);
  return merged(std::move(results), SampleParts::behind_each_other(counts));
}

int64_t DividedForward::num_tokens() const {
  int64_t tokens = 0;
  for (const auto& part : parts_) tokens += part->num_tokens();
  return tokens;
}

void DividedForward::request(const ObservationRequest& request) {
  request_ = request;
  for (size_t i = 0; i < parts_.size(); ++i) {
    ObservationRequest own = request;
    if (request.compared_samples)
      own.compared_samples =
          std::clamp<int64_t>(*request.compared_samples - static_cast<int64_t>(begins_[i]), 0,
                              parts_[i]->num_samples());
    parts_[i]->request(own);
  }
}

void DividedForward::show_hidden(HiddenSink* sink) {
  // The old ones stay while parts may still release rows.
  if (sink && sink != sink_) {
    sinks_.clear();
    for (size_t i = 0; i < parts_.size(); ++i)
      sinks_.push_back(std::make_unique<RenumberedSink>(
          *sink,
          [first = static_cast<int64_t>(begins_[i])](int64_t sample) { return first + sample; }));
    sink_ = sink;
  }
  for (size_t i = 0; i < parts_.size(); ++i)
    parts_[i]->show_hidden(sink ? sinks_[i].get() : nullptr);
}

void DividedForward::restore_hidden(int64_t next_layer, const HiddenSource& source) {
  run_parts(parts_.size(), [&](size_t i) {
    const auto first = static_cast<int64_t>(begins_[i]);
    parts_[i]->restore_hidden(
        next_layer, [&](int64_t sample, std::span<float> rows) { source(first + sample, rows); });
  });
}

}  // namespace kvcal
