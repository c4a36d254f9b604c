#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace kvcal {

/// Receives the hidden states of samples after a layer. Threads of the forward pass call it, for
/// different samples at the same time.
class HiddenSink {
 public:
  virtual ~HiddenSink() = default;
  /// rows: [tokens, ModelConfig::carried_width] floats of one sample, in host memory. owner keeps
  /// them alive; with a null owner they stay valid until release of the sample has returned.
  virtual void put(int64_t sample, std::span<const float> rows,
                   std::shared_ptr<const void> owner) = 0;
  /// Called before rows without an owner change; returns when nobody reads them any longer.
  virtual void release(int64_t sample) = 0;
};

/// Fills rows, [tokens, carried_width] float32, with the stored rows of the sample. Throws Error
/// where they are not available.
using HiddenSource = std::function<void(int64_t sample, std::span<float> rows)>;

/// Passes samples on to another sink under other numbers: those of the whole run instead of those
/// of one part.
class RenumberedSink : public HiddenSink {
 public:
  /// number: maps a sample to its number in sink. Borrows the sink.
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
