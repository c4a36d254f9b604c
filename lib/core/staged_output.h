#pragma once

#include <memory>
#include <vector>

namespace kvcal {

/// An output that is written, but not at its place yet.
class StagedOutput {
 public:
  virtual ~StagedOutput() = default;
  /// Does everything that may fail before place. Throws Error.
  virtual void prepare() = 0;
  /// Moves it to its place, and what was there aside. Throws Error; then nothing has moved.
  virtual void place() = 0;
  /// Undoes place.
  virtual void take_back() noexcept = 0;
  /// Removes what place moved aside.
  virtual void settle() = 0;
};

/// Outputs of one command, which appear together or not at all; only a signal that no process can
/// catch leaves some of them.
class StagedOutputs {
 public:
  void add(std::unique_ptr<StagedOutput> output) {
    outputs_.push_back(output.get());
    owned_.push_back(std::move(output));
  }
  /// Borrows.
  void add(StagedOutput& output) { outputs_.push_back(&output); }
  /// Throws Error of the first that cannot appear.
  void commit();

 private:
  std::vector<StagedOutput*> outputs_;
  std::vector<std::unique_ptr<StagedOutput>> owned_;
};

}  // namespace kvcal
