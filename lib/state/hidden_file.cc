#include "state/hidden_file.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include <sys/stat.h>

#include "core/error.h"
#include "core/hash.h"
#include "core/posix_file.h"
#include "core/stopwatch.h"

namespace kvcal {
namespace {

double own_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

StateThread::StateThread() : thread_([this] { work(); }) {}

StateThread::~StateThread() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateThread::add(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

bool StateThread::is_idle() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !is_running_;
}

void StateThread::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !is_running_; });
}

bool StateThread::wait_until_idle(double seconds) {
  // Limited to any useful wait, and to the clock's range.
  const std::chrono::duration<double> most(std::clamp(seconds, 0.0, 86400.0));
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [&] { return tasks_.empty() && !is_running_; });
}

std::optional<std::string> StateThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

double StateThread::cpu_seconds() const {
  const std::lock_guard lock(mutex_);
  return cpu_seconds_;
}

void StateThread::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::optional<std::string> failure;
    try {
      task();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    task = nullptr;  // what it owns goes before anybody learns that it is done
    lock.lock();
    is_running_ = false;
    cpu_seconds_ = own_cpu_seconds();
    if (failure) {
      failure_ = std::move(failure);
      tasks_.clear();
    }
    changed_.notify_all();
  }
}

namespace {

constexpr uint64_t kMagic = 0x31484c4143564bULL;  // "KVCALH1", little-endian

/// Header of a sample's rows.
struct BlockHeader {
  uint64_t magic = kMagic;
  int64_t layer = 0, sample = 0;
  uint64_t values = 0, hash = 0;
};
static_assert(sizeof(BlockHeader) == 40);

}  // namespace

uint64_t hidden_file_bytes(uint64_t samples, uint64_t values) {
  return samples * sizeof(BlockHeader) + values * sizeof(float);
}

/// The file being written, by one thread.
class HiddenFileWriter::File {
 public:
  explicit File(fs::path path) : path_(std::move(path)), descriptor_(path_, O_WRONLY | O_CREAT) {}
  void write(std::span<const std::byte> bytes) {
    write_all_at(descriptor_.get(), bytes, position_, path_);
    position_ += bytes.size();
  }
  void finish() {
    cut_file(descriptor_.get(), position_, path_);
    flush_file(descriptor_.get(), path_);
  }

 private:
  fs::path path_;
  OwnFile descriptor_;
  uint64_t position_ = 0;
};

/// Rows waiting for the writer; its end marks them as done, written or not.
struct HiddenFileWriter::Borrowed {
  HiddenFileWriter& writer;
  int64_t sample;
  std::span<const float> rows;
  std::shared_ptr<const void> owner;

  ~Borrowed() {
    {
      const std::lock_guard lock(writer.mutex_);
      if (owner)
        writer.owned_bytes_ -= rows.size_bytes();
      else
        writer.borrowed_.erase(sample);
    }
    writer.written_.notify_all();
  }
};

void HiddenFileWriter::begin(const fs::path& file, int64_t layer, uint64_t run) {
  layer_ = layer;
  run_ = run;
  file_ = std::make_shared<File>(file);
}

void HiddenFileWriter::put(int64_t sample, std::span<const float> rows,
                           std::shared_ptr<const void> owner) {
  {
    std::unique_lock lock(mutex_);
    if (owner) {
      const TimedScope watch(waited_);
      written_.wait(lock, [&] { return owned_bytes_ == 0 || owned_bytes_ < kMostOwned; });
      owned_bytes_ += rows.size_bytes();
    } else {
      borrowed_.insert(sample);
    }
  }
  const std::shared_ptr<Borrowed> waiting(new Borrowed{*this, sample, rows, std::move(owner)});
  thread_.add([waiting, file = file_, layer = layer_, run = run_] {
    const auto bytes = std::as_bytes(waiting->rows);
    const BlockHeader header{.layer = layer,
                             .sample = waiting->sample,
                             .values = waiting->rows.size(),
                             .hash = hash64(bytes) ^ run};
    file->write(std::as_bytes(std::span(&header, 1)));
    file->write(bytes);
  });
}

void HiddenFileWriter::release(int64_t sample) {
  std::unique_lock lock(mutex_);
  if (!borrowed_.contains(sample)) return;
  const TimedScope watch(waited_);
  written_.wait(lock, [&] { return !borrowed_.contains(sample); });
}

void HiddenFileWriter::end() {
  thread_.add([file = std::move(file_)] { file->finish(); });
}

double HiddenFileWriter::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_;
}

class HiddenFileReader::File {
 public:
  explicit File(const fs::path& path) : path_(path), descriptor_(path, O_RDONLY) {}
  void read(std::span<std::byte> bytes, uint64_t offset) const {
    const size_t got = read_at(descriptor_.get(), bytes, offset, path_);
    if (got < bytes.size()) fail(path_.string(), ": ends early, at byte ", offset + got);
  }
  const fs::path& path() const { return path_; }
  uint64_t size() const { return descriptor_.size(); }

 private:
  fs::path path_;
  OwnFile descriptor_;
};

HiddenFileReader::HiddenFileReader(const std::vector<fs::path>& files, int64_t layer, uint64_t run)
    : run_(run) {
  for (const fs::path& path : files) {
    files_.push_back(std::make_unique<File>(path));
    list(files_.size() - 1, layer);
  }
}

HiddenFileReader::~HiddenFileReader() = default;

void HiddenFileReader::list(size_t index, int64_t layer) {
  const File& file = *files_[index];
  for (uint64_t offset = 0; offset < file.size();) {
    BlockHeader header;
    if (file.size() - offset < sizeof header)
      fail(file.path().string(), ": ends within a header, at byte ", offset);
    file.read(std::as_writable_bytes(std::span(&header, 1)), offset);
    offset += sizeof header;
    if (header.magic != kMagic)
      fail(file.path().string(), ": holds no hidden states at byte ", offset - sizeof header);
    if (header.layer != layer)
      fail(file.path().string(), ": holds what layer ", header.layer, " left, expected layer ",
           layer);
    if (header.values > (file.size() - offset) / sizeof(float))
      fail(file.path().string(), ": ends within the rows of sample ", header.sample);
    if (!places_.try_emplace(header.sample, Place{index, offset, header.values, header.hash})
             .second)
      fail(file.path().string(), ": sample ", header.sample, " is there twice");
    offset += header.values * sizeof(float);
  }
}

void HiddenFileReader::read(int64_t sample, std::span<float> rows) const {
  const auto found = places_.find(sample);
  if (found == places_.end()) fail("the hidden states of sample ", sample, " are missing");
  const Place& place = found->second;
  const File& file = *files_[place.file];
  if (place.values != rows.size())
    fail(file.path().string(), ": sample ", sample, " has ", counted(place.values, "value"),
         ", expected ", rows.size());
  const auto bytes = std::as_writable_bytes(rows);
  file.read(bytes, place.offset);
  if ((hash64(bytes) ^ run_) != place.hash)
    fail(file.path().string(), ": the rows of sample ", sample, " are damaged, or of another run");
}

}  // namespace kvcal
