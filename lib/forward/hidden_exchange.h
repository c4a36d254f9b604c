#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace kvcal {

/// Is shown the hidden states of samples as a layer leaves them. Called by the threads of the
/// forward pass, for different samples at the same time.
class HiddenSink {
 public:
  virtual ~HiddenSink() = default;
  /// rows: [tokens, hidden_size] float32 in host memory, of one sample. owner keeps them; null:
  /// they stay as they are until release of the sample has returned.
  virtual void put(int64_t sample, std::span<const float> rows,
                   std::shared_ptr<const void> owner) = 0;
  /// Rows of the sample that came without an owner are about to change; returns when nobody reads
  /// them any longer.
  virtual void release(int64_t sample) = 0;
};

/// Fills rows, [tokens, hidden_size] float32, with what was put for the sample. Throws Error where
/// that is not to be had.
using HiddenSource = std::function<void(int64_t sample, std::span<float> rows)>;

/// Shows another sink the samples under other numbers: those of one part of a run as the run's.
class RenumberedSink : public HiddenSink {
 public:
  /// number: the sink's, of a sample. Borrows the sink.
  RenumberedSink(HiddenSink& sink, std::function<int64_t(int64_t)> number)
      : sink_(sink), number_(std::move(number)) {}
  void put(int64_t sample, std::span<const float> rows,
           std::shared_ptr<const void> owner) override {
    sink_.put(number_(sample), rows, std::move(owner));
  }
  void release(int64_t sample) override { sink_.release(number_(sample)); }

 private:
  HiddenSink& sink_;
  std::function<int64_t(int64_t)> number_;
};

}  // namespace kvcal
