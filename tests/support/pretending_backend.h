#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "core/error.h"

namespace kvcal::test {

/// A host backend that behaves as the contract lets a device behave, at its worst: operations
/// happen when something is copied out, never before; new memory holds NaN; a fetch's destination
/// holds NaN until it is awaited; what is recorded may ask for nothing but operations. Host code
/// that reads or writes buffers on its own gets wrong bytes.
class PretendingBackend : public Backend {
 public:
  explicit PretendingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  ~PretendingBackend() override { flush(); }

  std::optional<uint64_t> memory = {};  ///< what free_memory says, less what is allocated
  bool packs_in_thread = true, records = true;
  std::map<std::string, int64_t> counts;  ///< how often each operation was asked for
  std::vector<std::string> calls;         ///< their names in order
  uint64_t allocated = 0, peak = 0;       ///< bytes of the device's memory, now and at most
  int64_t num_recordings = 0, num_plays = 0;
  std::vector<std::string> warnings;        ///< that take_warnings gives
  std::string used;                         ///< what kernels_used says
  std::vector<ProductChoice> made_choices;  ///< what product_choices says
  std::vector<PartTime> taken_times;        ///< what part_times says

  std::string_view name() const override { return "pretending"; }
  std::string description() const override { return "pretending " + inner_->description(); }
  std::vector<std::string> take_warnings() override { return std::exchange(warnings, {}); }
  std::string kernels_used() const override { return used; }
  std::vector<ProductChoice> product_choices() const override { return made_choices; }
  std::vector<PartTime> part_times() override { return taken_times; }
  bool supports(ComputeType type) const override { return inner_->supports(type); }
  ComputeType preferred_compute_type() const override { return inner_->preferred_compute_type(); }
  int64_t preferred_batch_tokens(int64_t bytes_per_token) const override {
    return inner_->preferred_batch_tokens(bytes_per_token);
  }
  bool is_host() const override { return false; }
  std::optional<uint64_t> free_memory() const override {
    if (!memory) return std::nullopt;
    return *memory - std::min(*memory, allocated);
  }
  bool packs_beside() const override { return packs_in_thread; }
  bool can_record() const override { return records; }

  Buffer allocate(size_t bytes) override {
    KVCAL_CHECK(!recorded_);
    const std::lock_guard lock(queue_mutex_);
    allocated += bytes;
    peak = std::max(peak, allocated);
    return new_buffer(bytes);
  }
  Buffer allocate_pinned(size_t bytes) override {
    KVCAL_CHECK(!recorded_);
    count("allocate_pinned");
    const std::lock_guard lock(queue_mutex_);
    Buffer buffer = new_buffer(bytes);
    pinned_[buffer.data()] = bytes;
    return buffer;
  }
  void free(std::byte* data, size_t bytes) noexcept override {
    const std::lock_guard lock(queue_mutex_);
    if (pinned_.erase(data) == 0) allocated -= bytes;
    const std::shared_ptr<std::byte[]> kept = std::move(memory_[data]);
    memory_.erase(data);
    queue_.push_back([kept] {});  // what was asked for before may still use it
  }
  void copy_in(std::span<const std::byte> host, std::byte* data) override {
    KVCAL_CHECK(!recorded_);
    count("copy_in");
    enqueue([data, bytes = std::vector<std::byte>(host.begin(), host.end())] {
      if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
    });
  }
  void copy_out(const std::byte* data, std::span<std::byte> host) override {
    KVCAL_CHECK(!recorded_);
    count("copy_out");
    flush();
    if (!host.empty()) std::memcpy(host.data(), data, host.size());
  }
  void fill_zero(std::byte* data, size_t bytes) override {
    enqueue([data, bytes] { std::memset(data, 0, bytes); });
  }
  void fetch(const std::byte* pinned, std::span<std::byte> data) override {
    count("fetch");
    enqueue([data] { std::memset(data.data(), kPoison, data.size()); });
    fetches_.emplace_back([=] { std::memcpy(data.data(), pinned, data.size()); });
  }
  void write_back(std::span<const std::byte> data, std::byte* pinned) override {
    count("write_back");
    enqueue([=] { std::memcpy(pinned, data.data(), data.size()); });
  }
  void await_fetches() override {
    for (auto& fetch : std::exchange(fetches_, {})) enqueue(std::move(fetch));
  }

  std::unique_ptr<Recording> record(const std::function<void()>& body) override {
    std::vector<std::function<void()>> operations;
    recorded_ = &operations;
    try {
      body();
    } catch (...) {
      recorded_ = nullptr;
      throw;
    }
    recorded_ = nullptr;
    ++num_recordings;
    return std::make_unique<Played>(*this, std::move(operations));
  }
  std::unique_ptr<PackedMatrix> pack(std::span<const TensorView> parts, ComputeType type) override {
    KVCAL_CHECK(!recorded_);
    const std::lock_guard lock(inner_mutex_);
    return std::make_unique<Packed>(inner_->pack(parts, type));
  }
  std::unique_ptr<PackedMatrix> pack_fp8(std::span<const TensorView> parts,
                                         std::span<const float> scales) override {
    KVCAL_CHECK(!recorded_);
    const std::lock_guard lock(inner_mutex_);
    return std::make_unique<Packed>(inner_->pack_fp8(parts, scales));
  }

 protected:
#define KVCAL_ASK(name, Args)                 \
  void do_##name(const Args& args) override { \
    ask(#name, &Backend::name, args);         \
  }
  KVCAL_OPERATIONS(KVCAL_ASK)
  KVCAL_ASK(residual_norm, ResidualNormArgs)
  KVCAL_ASK(enter_cache, EnterCacheArgs)
#undef KVCAL_ASK

 private:
  static constexpr int kPoison = 0xff;  // NaN in every float type

  struct Packed : PackedMatrix {
    explicit Packed(std::shared_ptr<PackedMatrix> inner) : matrix(std::move(inner)) {
      out_features = matrix->out_features;
      in_features = matrix->in_features;
      bytes = matrix->bytes;
    }
    std::shared_ptr<PackedMatrix> matrix;
  };
  struct Played : Recording {
    Played(PretendingBackend& owner, std::vector<std::function<void()>> list)
        : backend(owner), operations(std::move(list)) {}
    void play() override {
      ++backend.num_plays;
      for (const auto& operation : operations) backend.enqueue(operation);
    }
    PretendingBackend& backend;
    std::vector<std::function<void()>> operations;
  };

  template <class Args>
  void ask(const std::string& name, void (Backend::*operation)(const Args&), const Args& args) {
    count(name);
    if constexpr (requires { args.segments; }) {
      enqueue([this, operation, args,
               segments = std::vector<Segment>(args.segments.begin(), args.segments.end())] {
        Args now = args;
        now.segments = segments;
        (inner_.get()->*operation)(now);
      });
    } else {
      enqueue([this, operation, args] { (inner_.get()->*operation)(args); });
    }
  }
  // These hold more than values: host memory that is read at once, or a matrix of ours.
  void ask(const std::string& name, void (Backend::*)(const EmbedArgs&), const EmbedArgs& args) {
    KVCAL_CHECK(!recorded_);
    count(name);
    const size_t row = args.table.bytes.size() / static_cast<size_t>(args.table.shape[0]);
    std::vector<std::byte> rows;
    std::vector<int32_t> places;
    for (const int32_t id : args.ids) {
      const auto bytes = args.table.bytes.subspan(static_cast<size_t>(id) * row, row);
      rows.insert(rows.end(), bytes.begin(), bytes.end());
      places.push_back(static_cast<int32_t>(places.size()));
    }
    enqueue([this, name = args.table.name, dtype = args.table.dtype, width = args.table.shape[1],
             rows = std::move(rows), places = std::move(places), multiplier = args.multiplier,
             accumulate = args.accumulate, out = args.out] {
      const TensorView table{
          .name = name, .dtype = dtype, .shape = {std::ssize(places), width}, .bytes = rows};
      inner_->embed({table, places, multiplier, accumulate, out});
    });
  }
  void ask(const std::string& name, void (Backend::*)(const MatmulArgs&), const MatmulArgs& args) {
    count(args.is_decoding ? name + " of a decoding step" : name);
    enqueue([this, args, matrix = static_cast<const Packed&>(args.weight).matrix] {
      inner_->matmul({.x = args.x,
                      .weight = *matrix,
                      .bias = args.bias,
                      .accumulate = args.accumulate,
                      .rows = args.rows,
                      .out = args.out,
                      .out_stride = args.out_stride,
                      .is_decoding = args.is_decoding});
    });
  }
  void ask(const std::string& name, void (Backend::*)(const Fp8MatmulArgs&),
           const Fp8MatmulArgs& args) {
    count(name);
    enqueue([this, args, matrix = static_cast<const Packed&>(args.weight).matrix] {
      inner_->matmul_fp8({.x = args.x,
                          .x_scales = args.x_scales,
                          .scale_per_row = args.scale_per_row,
                          .weight = *matrix,
                          .bias = args.bias,
                          .accumulate = args.accumulate,
                          .rows = args.rows,
                          .out = args.out,
                          .out_stride = args.out_stride,
                          .is_decoding = args.is_decoding});
    });
  }
  void count(const std::string& name) {
    const std::lock_guard lock(queue_mutex_);
    ++counts[name];
    calls.push_back(name);
  }
  void enqueue(std::function<void()> operation) {
    if (recorded_) return recorded_->push_back(std::move(operation));
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(operation));
  }
  void flush() {
    std::vector<std::function<void()>> queue;
    {
      const std::lock_guard lock(queue_mutex_);
      queue.swap(queue_);
    }
    const std::lock_guard lock(inner_mutex_);
    for (const auto& operation : queue) operation();
  }
  Buffer new_buffer(size_t bytes) {
    constexpr size_t kAlignment = 64;
    const std::shared_ptr<std::byte[]> whole(new std::byte[bytes + kAlignment]);
    std::memset(whole.get(), kPoison, bytes + kAlignment);
    void* aligned = whole.get();
    size_t space = bytes + kAlignment;
    auto* data = static_cast<std::byte*>(std::align(kAlignment, bytes, aligned, space));
    memory_[data] = whole;
    return {this, data, bytes};
  }

  std::unique_ptr<Backend> inner_;
  std::mutex queue_mutex_, inner_mutex_;  ///< of what the packing thread touches too
  std::vector<std::function<void()>> queue_, fetches_;
  std::vector<std::function<void()>>* recorded_ = nullptr;
  std::map<std::byte*, std::shared_ptr<std::byte[]>> memory_;
  std::map<std::byte*, size_t> pinned_;
};

/// A device that is lost at a matrix product, after the given number of others.
class FailingBackend : public PretendingBackend {
 public:
  FailingBackend(std::unique_ptr<Backend> inner, int64_t products)
      : PretendingBackend(std::move(inner)), left_(products) {}

 protected:
  void do_matmul(const MatmulArgs& args) override {
    if (left_-- == 0) fail("the device is gone");
    PretendingBackend::do_matmul(args);
  }

 private:
  int64_t left_;
};

}  // namespace kvcal::test
