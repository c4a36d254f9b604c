#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "forward/hidden_exchange.h"
#include "state/state_thread.h"

namespace kvcal {

namespace fs = std::filesystem;

/// Writes the hidden states that a layer leaves into a file, beside the forward pass: of each
/// sample a header (layer, sample, number of values, XXH3 of the rows) and its rows. Samples come
/// in any order, from any thread.
class HiddenFileWriter : public HiddenSink {
 public:
  /// thread: what writes; borrowed, and goes first.
  explicit HiddenFileWriter(StateThread& thread) : thread_(thread) {}

  /// The rows put from now on come from layer, and go into file, whose blocks on the disk are used
  /// again.
  void begin(const fs::path& file, int64_t layer);
  void put(int64_t sample, std::span<const float> rows, std::shared_ptr<const void> owner) override;
  void release(int64_t sample) override;
  /// The file is complete: it goes to the disk.
  void end();
  /// Seconds that put and release have waited so far.
  double waited_seconds() const;

 private:
  class File;
  class Borrowed;
  /// The most bytes of owned rows that wait to be written.
  static constexpr size_t kMostOwned = size_t{16} << 20;

  StateThread& thread_;
  std::shared_ptr<File> file_;
  int64_t layer_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::set<int64_t> borrowed_;  ///< samples whose rows are still to be read
  size_t owned_bytes_ = 0;
  double waited_ = 0.0;
};

/// Reads what HiddenFileWriters put into files for one layer.
class HiddenFileReader {
 public:
  /// Throws Error naming the file where one is missing, damaged, or holds another layer.
  HiddenFileReader(const std::vector<fs::path>& files, int64_t layer);
  ~HiddenFileReader();

  /// Fills rows with those of the sample. Throws Error where it is missing, has another number of
  /// values, or is damaged.
  void read(int64_t sample, std::span<float> rows) const;

 private:
  struct Place {
    size_t file = 0;
    uint64_t offset = 0, values = 0, hash = 0;
  };
  class File;
  void list(size_t index, int64_t layer);

  std::vector<std::unique_ptr<File>> files_;
  std::map<int64_t, Place> places_;
};

/// Bytes that the rows of so many values take in such a file.
uint64_t hidden_file_bytes(uint64_t samples, uint64_t values);

}  // namespace kvcal
