#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "core/file.h"

namespace kvcal {

/// Memory for hidden states.
struct HiddenRoom {
  std::optional<uint64_t> bytes = {};  ///< limit in the backend's memory
  fs::path scratch_folder = {};        ///< for the file into which a host backend spills
};

/// Residual stream of all batches between two layers, [tokens, width] float32. It lies in the
/// backend's memory while it fits. Beyond that, a host uses a mapped scratch file, and a device
/// uses pinned host memory, from which the next batch is fetched during computation.
class HiddenStates {
 public:
  enum class Access {
    kWrite,  ///< all rows are overwritten
    kRead,
    kUpdate  ///< read, then changed
  };
  /// rows: of the batch, in backend memory, valid during the call.
  using Visit = std::function<void(size_t batch, float* rows)>;

  /// batch_tokens: tokens of each batch.
  HiddenStates(Backend& backend, int64_t width, std::vector<int64_t> batch_tokens,
               const HiddenRoom& room);
  ~HiddenStates();
  HiddenStates(const HiddenStates&) = delete;
  HiddenStates& operator=(const HiddenStates&) = delete;

  /// Visits all batches in order.
  void walk(Access access, const Visit& visit);
  bool are_in_backend() const { return !scratch_ && pinned_.size() == 0; }

 private:
  void walk_scratch(Access access, const Visit& visit);
  void walk_pinned(Access access, const Visit& visit);
  size_t bytes_of(size_t batch) const;
  void fetch(size_t batch, size_t turn);

  Backend& backend_;
  int64_t width_;
  std::vector<int64_t> batch_tokens_;
  std::vector<size_t> offsets_;  ///< bytes before each batch
  Buffer resident_;
  std::optional<ScratchMapping> scratch_;
  Buffer pinned_, turns_[2];           ///< all batches, and two on the device
  size_t turn_ = 0;                    ///< index of the next batch's turn
  std::optional<size_t> coming_ = {};  ///< batch that is being fetched
};

}  // namespace kvcal
