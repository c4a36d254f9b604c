#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "forward/layer_forward.h"

namespace kvcal {

/// Runs tasks one after the other, beside the forward pass. A failure cancels all later tasks.
class StateThread {
 public:
  StateThread();
  /// Runs the remaining tasks first.
  ~StateThread();
  StateThread(const StateThread&) = delete;
  StateThread& operator=(const StateThread&) = delete;

  void add(std::function<void()> task);
  bool is_idle() const;
  void wait_until_idle();
  /// Waits for at most so many seconds; returns whether it is idle.
  bool wait_until_idle(double seconds);
  /// Message of the failure, after which no task runs.
  std::optional<std::string> failure() const;
  /// CPU seconds of the thread so far.
  double cpu_seconds() const;

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_running_ = false, stops_ = false;
  std::optional<std::string> failure_;
  double cpu_seconds_ = 0.0;
  std::thread thread_;
};

namespace fs = std::filesystem;

/// Writes the hidden states after a layer into a file, beside the forward pass: for each sample a
/// header (layer, sample, number of values, XXH3 of the rows by the run) and its rows. Samples come
/// in any order, from any thread.
class HiddenFileWriter : public HiddenSink {
 public:
  /// thread: the writer's; borrowed, destroyed before this.
  explicit HiddenFileWriter(StateThread& thread) : thread_(thread) {}

  /// Directs rows from now on, those of layer, into file, whose disk blocks are reused. run:
  /// StateFolder::run.
  void begin(const fs::path& file, int64_t layer, uint64_t run);
  void put(int64_t sample, std::span<const float> rows, std::shared_ptr<const void> owner) override;
  void release(int64_t sample) override;
  /// Completes the file and flushes it to disk.
  void end();
  /// Seconds that put and release have waited so far.
  double waited_seconds() const;

 private:
  class File;
  struct Borrowed;
  /// Limit of owned rows, in bytes, that wait to be written.
  static constexpr size_t kMostOwned = size_t{16} << 20;

  StateThread& thread_;
  std::shared_ptr<File> file_;
  int64_t layer_ = 0;
  uint64_t run_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::set<int64_t> borrowed_;  ///< samples whose rows are still unread
  size_t owned_bytes_ = 0;
  double waited_ = 0.0;
};

/// Reads files of HiddenFileWriters for one layer.
class HiddenFileReader {
 public:
  /// Throws Error naming a file that is missing, damaged, or of another layer.
  HiddenFileReader(const std::vector<fs::path>& files, int64_t layer, uint64_t run);
  ~HiddenFileReader();

  /// Fills rows with the sample's. Throws Error where the sample is missing, has another number of
  /// values, or is damaged or of another run.
  void read(int64_t sample, std::span<float> rows) const;

 private:
  struct Place {
    size_t file = 0;
    uint64_t offset = 0, values = 0, hash = 0;
  };
  class File;
  void list(size_t index, int64_t layer);

  std::vector<std::unique_ptr<File>> files_;
  uint64_t run_;
  std::map<int64_t, Place> places_;
};

/// Bytes of so many samples and values in such a file.
uint64_t hidden_file_bytes(uint64_t samples, uint64_t values);

}  // namespace kvcal
