// An exchanged layer is memory mapped over the file's pages. It is filled, and the pages are
// restored afterwards, so views, packing and memory plans are unaware of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "checkpoint/model_dir.h"
#include "core/pages.h"
#include "core/posix_file.h"
#include "ranks/communicator.h"
#include "stored/weights.h"

namespace kvcal {

/// LayerBytes of one of several ranks.
class RankLayerBytes : public LayerBytes {
 public:
  /// Hash of the layer's bytes as this rank packed them; equal bytes have equal hashes. 0: this
  /// rank did not pack it.
  uint64_t hash(int64_t layer) const;
  /// Bytes of layers that this rank has read from files.
  uint64_t bytes_read() const { return bytes_read_; }
  /// Announces that this rank brings no more layers, to ranks that wait for the next one.
  virtual void leave() noexcept {}

 protected:
  void set_hash(int64_t layer, uint64_t hash);
  std::atomic<uint64_t> bytes_read_ = 0;

 private:
  mutable std::mutex hash_mutex_;
  std::map<int64_t, uint64_t> hashes_;
};

/// Whole pages of one of a model's files.
struct FileExtent {
  size_t shard = 0;  ///< of ModelDir::shards
  uint64_t begin = 0, end = 0;
};

/// Pages that hold a layer's tensors, by shard and offset, without duplicates. The last page may
/// extend beyond the end of the file.
std::vector<FileExtent> layer_extents(const ModelDir& model_dir, const Weights& weights,
                                      int64_t layer);

/// Hash of the bytes of a layer's tensors, read once, a few megabytes at a time; tables of which
/// rows are looked up are not in it, nor are they exchanged. Never 0.
uint64_t layer_hash(const Weights& weights, int64_t layer);

/// Layers that this rank reads by itself, as a single process does, from files that must be equal
/// on all ranks, so it hashes the bytes it packs. Borrows.
class LocalLayers : public RankLayerBytes {
 public:
  explicit LocalLayers(const Weights& weights) : weights_(weights) {}

  void will_need(int64_t layer) override { weights_.will_need(layer); }
  void bring(int64_t layer) override;
  void drop(int64_t layer) noexcept override { weights_.drop(layer); }

 private:
  const Weights& weights_;
  std::mutex mutex_;
};

/// Layers of which each rank reads one part from the files and gets the rest from the others, so
/// that together they read each layer once. While a layer is packed, memory with the exchanged
/// bytes replaces its mapped pages, so packing is unaware of the exchange. All ranks bring the same
/// layers in the same order.
class ExchangedLayers : public RankLayerBytes {
 public:
  /// ranks: its own communicator, for the threads that bring layers. Borrows model_dir and weights.
  ExchangedLayers(std::unique_ptr<Communicator> ranks, const ModelDir& model_dir,
                  const Weights& weights);
  ~ExchangedLayers() override;

  void will_need(int64_t layer) override;
  /// Throws RankLeft where another rank brings no more layers.
  void bring(int64_t layer) override;
  void drop(int64_t layer) noexcept override;
  void leave() noexcept override;

  /// Most memory of the machine that a layer takes while it is packed.
  static uint64_t largest_bytes(const ModelDir& model_dir, const Weights& weights);

 private:
  struct LayerPages {
    std::vector<FileExtent> extents;
    std::unique_ptr<PageSubstitute> pages;
  };
  /// Announcement of a rank before it brings a layer.
  struct Step {
    int64_t layer = 0;  ///< kLeaves: no more layers
    uint64_t bytes = 0;
  };
  static constexpr int64_t kLeaves = -1;

  void agree_on(const Step& own);
  void fill(const LayerPages& held);
  /// Reads bytes [begin, end) of the concatenated extents into memory.
  void read(const std::vector<FileExtent>& extents, uint64_t begin, std::span<std::byte> into);
  void restore(const LayerPages& held) noexcept;
  /// Share of a rank in so many bytes, in whole pages.
  MemoryPart share(uint64_t bytes, int rank) const;

  std::unique_ptr<Communicator> ranks_;
  const ModelDir& model_dir_;
  const Weights& weights_;
  std::vector<std::unique_ptr<Descriptor>> files_;  ///< of the shards
  std::mutex mutex_;                                ///< for exchanges and the layer held
  std::map<int64_t, LayerPages> held_;
  bool has_left_ = false;
  std::mutex leave_mutex_;
  std::future<void> leaving_;  ///< its destructor waits
};

}  // namespace kvcal
