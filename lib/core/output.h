// Outputs appear by rename. Everything is written into a hidden folder beside the target,
// flushed and renamed; an error or an interrupt removes the folder. The lock of a target names the
// hidden files and folders of its holder, so that the next one removes what a killed run left.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
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

/// Name of the file beside every checkpoint and set of scales that says how it was made.
inline constexpr std::string_view kManifestName = "kvcal_manifest.json";
/// Name of the file that marks any other folder as an output of this program.
inline constexpr std::string_view kMarkName = ".kvcal-output";

enum class OutputKind { kFile, kFolder };

/// Throws Error where target exists and an output of this kind may not take its place. Without
/// overwrite nothing may be replaced. With it a file replaces only a regular file, and a folder
/// only one that is empty or that this program wrote: one with kManifestName or kMarkName. Links,
/// devices, pipes and sockets are never replaced. A slash at the end of target changes nothing.
void check_replaceable(const std::filesystem::path& target, OutputKind kind, bool overwrite);

/// Puts kMarkName into a folder that has no manifest. Throws Error as FileWriter does.
void mark_output(const std::filesystem::path& folder);

/// Throws Error where something below a folder that this program keeps for itself is neither a file
/// nor a folder: a link would lead out of it.
void check_holds_no_links(const std::filesystem::path& folder);

}  // namespace kvcal
