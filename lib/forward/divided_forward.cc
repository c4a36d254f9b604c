#include "forward/divided_forward.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <numeric>
#include <set>
#include <string>

#include "core/error.h"
#include "forward/merged_observation.h"

namespace kvcal {
namespace {

/// Thrown in the other parts after one has failed; never leaves this file.
struct Stopped {};

}  // namespace

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
  run_parts(count, [&](size_t i) {
    parts_[i] = std::make_unique<LayerwiseForward>(
        config, weights, *backends[i], samples.subspan(begins_[i], begins_[i + 1] - begins_[i]),
        options_, diagnostics_->part(i));
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
  // Kept while parts may still release rows.
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
