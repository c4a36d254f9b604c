#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "backend/backend.h"
#include "bench/machine_rate.h"

namespace kvcal::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What one operation cost so far.
struct OperationTime {
  int64_t calls = 0;
  double seconds = 0;      ///< wall
  double cpu_seconds = 0;  ///< of all threads of the process
  double flop = 0;         ///< of matmul and attention
};

/// A backend's operations, timed by name. Everything goes to the backend inside; the default
/// bodies of Backend's fused operations are never used here, so that what is timed is what runs.
class TimedBackend : public Backend {
 public:
  /// settle: waits until the backend has done what the thread that made this asked for. A host's
  /// has when an operation returns.
  explicit TimedBackend(std::unique_ptr<Backend> inner,
                        std::function<void(Backend&)> settle = nullptr)
      : inner_(std::move(inner)), settle_(std::move(settle)) {}

  /// Of the thread that made this; packing in another thread is apart.
  std::map<std::string, OperationTime> operations, beside;
  std::atomic<uint64_t> packed_bytes = 0;
  /// When a layer's matrices were first packed, and when the first layer's arithmetic began.
  Clock::time_point first_pack = {}, first_operation = {};

  void clear() {
    operations.clear();
    beside.clear();
    packed_bytes = 0;
  }

  std::string_view name() const override { return inner_->name(); }
  std::string description() const override { return inner_->description(); }
  bool supports(ComputeType type) const override { return inner_->supports(type); }
  ComputeType preferred_compute_type() const override { return inner_->preferred_compute_type(); }
  int64_t preferred_batch_tokens(int64_t bytes_per_token) const override {
    return inner_->preferred_batch_tokens(bytes_per_token);
  }
  bool activates_in_matmul() const override { return inner_->activates_in_matmul(); }
  uint64_t attention_bytes_per_key(const AttentionArgs& args) const override {
    return inner_->attention_bytes_per_key(args);
  }
  bool is_host() const override { return inner_->is_host(); }
  std::optional<uint64_t> free_memory() const override { return inner_->free_memory(); }
  uint64_t selection_bytes_per_key() const override { return inner_->selection_bytes_per_key(); }
  bool turns_queries() const override { return inner_->turns_queries(); }
  bool leaves_entered_heads() const override { return inner_->leaves_entered_heads(); }
  bool packs_beside() const override { return inner_->packs_beside(); }
  bool can_record() const override { return inner_->can_record(); }
  std::unique_ptr<Recording> record(const std::function<void()>& body) override {
    return inner_->record(body);
  }

  Buffer allocate(size_t bytes) override {
    return timed("allocate", 0, [&] { return inner_->allocate(bytes); });
  }
  Buffer allocate_pinned(size_t bytes) override {
    return timed("allocate", 0, [&] { return inner_->allocate_pinned(bytes); });
  }
  void free(std::byte* data, size_t bytes) noexcept override { inner_->free(data, bytes); }
  void copy_in(std::span<const std::byte> host, std::byte* data) override {
    timed("copy", 0, [&] { inner_->copy_in(host, data); });
  }
  void copy_out(const std::byte* data, std::span<std::byte> host) override {
    timed("copy", 0, [&] { inner_->copy_out(data, host); });
  }
  void fill_zero(std::byte* data, size_t bytes) override {
    timed("fill_zero", 0, [&] { inner_->fill_zero(data, bytes); });
  }
  void fetch(const std::byte* pinned, std::span<std::byte> data) override {
    timed("copy", 0, [&] { inner_->fetch(pinned, data); });
  }
  void write_back(std::span<const std::byte> data, std::byte* pinned) override {
    timed("copy", 0, [&] { inner_->write_back(data, pinned); });
  }
  void await_fetches() override {
    timed("copy", 0, [&] { inner_->await_fetches(); });
  }
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override {
    return packed(timed("pack", 0, [&] { return inner_->pack(parts, type); }));
  }
  std::unique_ptr<PackedMatrix> pack_decoded(std::span<const DecodedRows> parts,
                                             ComputeType type) override {
    return packed(timed("pack", 0, [&] { return inner_->pack_decoded(parts, type); }));
  }
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override {
    return packed(timed("pack", 0, [&] { return inner_->pack_fp8(parts, scales); }));
  }

 protected:
#define KVCAL_TIME(name, Args)                                \
  void do_##name(const Args& args) override {                 \
    timed(#name, flop_of(args), [&] { inner_->name(args); }); \
  }
  KVCAL_OPERATIONS(KVCAL_TIME)
  KVCAL_FUSED_OPERATIONS(KVCAL_TIME)
#undef KVCAL_TIME

 private:
  std::unique_ptr<PackedMatrix> packed(std::unique_ptr<PackedMatrix> matrix) {
    packed_bytes += matrix->bytes;
    return matrix;
  }
  static double product_flop(int64_t rows, const PackedMatrix& weight) {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(weight.in_features) *
           static_cast<double>(weight.out_features);
  }
  template <class Args>
  static double flop_of(const Args&) {
    return 0;
  }
  static double flop_of(const MatmulArgs& args) {
    return product_flop(args.rows, args.weight);
  }
  static double groups_flop(std::span<const RowGroup> groups) {
    double flop = 0;
    for (const RowGroup& group : groups) flop += product_flop(group.rows, group.weight);
    return flop;
  }
  static double flop_of(const MatmulGroupsArgs& args) {
    return groups_flop(args.groups);
  }
  static double flop_of(const MatmulActivateArgs& args) {
    return groups_flop(args.groups);
  }
  static double flop_of(const AttentionArgs& args) {
    double flop = 0;
    for (const Segment& segment : args.segments)
      flop += attention_flop(segment.kv_count - segment.q_count, segment.q_count,
                             args.sliding_window, args.heads * (args.head_dim + args.value_dim()));
    return flop;
  }

  /// Notes the call when its body has ended.
  class Stopwatch {
   public:
    Stopwatch(TimedBackend& owner, std::string_view name, double flop)
        : owner_(owner), name_(name), flop_(flop) {
      if (name == "pack" && owner.first_pack == Clock::time_point{}) owner.first_pack = begin_;
      const bool is_arithmetic = name != "pack" && name != "embed" && name != "allocate" &&
                                 name != "copy" && name != "fill_zero";
      if (is_arithmetic && owner.first_operation == Clock::time_point{})
        owner.first_operation = begin_;
    }
    ~Stopwatch() {
      const std::lock_guard lock(owner_.mutex_);
      auto& list = std::this_thread::get_id() == owner_.thread_ ? owner_.operations : owner_.beside;
      OperationTime& time = list[std::string(name_)];
      ++time.calls;
      time.seconds += seconds_since(begin_);
      time.cpu_seconds += process_cpu_seconds() - cpu_begin_;
      time.flop += flop_;
    }

   private:
    TimedBackend& owner_;
    std::string_view name_;
    double flop_;
    Clock::time_point begin_ = Clock::now();
    double cpu_begin_ = process_cpu_seconds();
  };

  template <class Body>
  std::invoke_result_t<const Body&> timed(std::string_view name, double flop, const Body& body) {
    const Stopwatch stopwatch(*this, name, flop);
    const bool settles = settle_ && std::this_thread::get_id() == thread_;
    if constexpr (std::is_void_v<std::invoke_result_t<const Body&>>) {
      body();
      if (settles) settle_(*inner_);
    } else {
      auto result = body();
      if (settles) settle_(*inner_);
      return result;
    }
  }

  std::unique_ptr<Backend> inner_;
  std::function<void(Backend&)> settle_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::mutex mutex_;
};

}  // namespace kvcal::bench
