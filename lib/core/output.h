// Outputs appear by rename. Everything is written into a hidden folder beside the target,
// flushed and renamed; an error or an interrupt removes the folder. The lock of a target names the
// hidden files and folders of its holder, so that the next one removes what a killed run left.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/folder.h"
#include "core/posix_file.h"
#include "core/target_lock.h"

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
/// devices, pipes and sockets are never replaced, nor where something is mounted or what holds such
/// a place. A slash at the end of target changes nothing.
void check_replaceable(const fs::path& target, OutputKind kind, bool overwrite);

/// Puts kMarkName into a folder that has no manifest. Throws Error as FileWriter does.
void mark_output(const fs::path& folder);

/// Throws Error where something below a folder that this program keeps for itself is neither a file
/// nor a folder: a link would lead out of it.
void check_holds_no_links(const fs::path& folder);

/// The renames that bring what is finished to a target's place, in one folder.
class FilePlacement {
 public:
  /// folder: borrowed.
  explicit FilePlacement(const OpenFolder& folder) : folder_(folder) {}
  /// Throws Error; then nothing has moved.
  void place(const std::string& finished, const std::string& target, bool may_replace);
  void take_back() noexcept;
  /// Where what was at the target's place is now; empty: nothing was.
  const std::string& old() const { return old_; }

 private:
  const OpenFolder& folder_;
  std::string finished_, target_, old_;
  bool is_placed_ = false;
};

/// An output that appears complete or not at all. It is written to path(), a hidden folder or file
/// beside the target; commit() flushes and renames it. Without commit() the destructor removes it;
/// the next run with the same target removes what a killed process left. An existing target is an
/// Error unless overwrite and it may be replaced (core/output.h), which happens at commit(). The
/// target's folder is opened once: a link that is replaced meanwhile changes nothing.
class AtomicOutput : public StagedOutput {
 public:
  /// The program's own files may replace what it has read; an output of the user may not.
  enum class Of { kUser, kProgram };
  ~AtomicOutput() override;
  AtomicOutput(const AtomicOutput&) = delete;
  AtomicOutput& operator=(const AtomicOutput&) = delete;

  const fs::path& path() const { return path_; }
  const fs::path& target() const { return target_; }
  void commit();

  void prepare() override;
  void place() override { placement_.place(scratch_, name_, overwrite_); }
  void take_back() noexcept override { placement_.take_back(); }
  void settle() override;

 protected:
  AtomicOutput(const fs::path& target, OutputKind kind, bool overwrite, Of of);

 private:
  /// The target's folder, made with its parents where it is to be a folder's; removes those that it
  /// made, unless kept.
  class Parents {
   public:
    Parents(const fs::path& folder, OutputKind kind);
    ~Parents() { take_back(); }
    Parents(const Parents&) = delete;
    Parents& operator=(const Parents&) = delete;
    const OpenFolder& innermost() const { return way_.back(); }
    void keep() { are_kept_ = true; }

   private:
    void make(const std::string& name);
    void take_back();
    std::vector<OpenFolder> way_;  ///< each in the one before; all but the first were made
    bool are_kept_ = false;
  };

  const OpenFolder& folder() const { return parents_.innermost(); }
  void make_scratch();
  /// Throws Error where path() has become something else.
  void check_scratch() const;
  /// Throws Error where the target is an input.
  void check_unread() const;

  fs::path target_, path_;
  OutputKind kind_;
  bool overwrite_;
  Of of_;
  Parents parents_;
  std::string name_, scratch_;     ///< of target and path(), in the target's folder
  FileIdentity scratch_identity_;  ///< device and inode
  FilePlacement placement_{folder()};
  std::optional<TargetLock> lock_;  ///< nullopt after commit
};

/// An output folder. Another run that writes the same target is an Error that names both
/// (core/target_lock.h).
class AtomicDirectory : public AtomicOutput {
 public:
  AtomicDirectory(const fs::path& target, bool overwrite)
      : AtomicOutput(target, OutputKind::kFolder, overwrite, Of::kUser) {}

 private:
  /// Address space that is reserved until the scratch folder is removed. Listing a folder takes
  /// memory, so without it the folder could not be removed where a memory limit leaves none. It
  /// uses no memory.
  class Reserve {
   public:
    Reserve();  ///< throws std::bad_alloc
    ~Reserve();
    Reserve(const Reserve&) = delete;
    Reserve& operator=(const Reserve&) = delete;

   private:
    void* data_;
  };
  Reserve reserve_;
};

/// An output file, whose folder must exist. Runs that write the same target at once do not disturb
/// each other: the last one's file stays.
class AtomicFile : public AtomicOutput {
 public:
  AtomicFile(const fs::path& target, bool overwrite, Of of = Of::kUser)
      : AtomicOutput(target, OutputKind::kFile, overwrite, of) {}
};

/// Writes one of the program's own files as AtomicFile does.
void write_file_atomically(const fs::path& target, std::string_view content, bool overwrite);
/// write_file_atomically for content that write puts into the file it gets.
void write_file_atomically(const fs::path& target, bool overwrite,
                           const std::function<void(const fs::path& file)>& write);

}  // namespace kvcal
