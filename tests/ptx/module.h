#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "judge.h"
#include "parser.h"

namespace kvcal::ptx {

/// The PTX of one source file of kernels, as a program registers it. Kernels are parsed when they
/// are launched first.
class Module {
 public:
  /// fat_binary: what nvcc embeds, as __cudaRegisterFatBinary gets it.
  explicit Module(const void* fat_binary) : fat_binary_(fat_binary) {}

  /// Ends the program where the kernel is not there or has something that the judge does not know.
  const Kernel& kernel(const std::string& name);
  /// Parses all kernels.
  Parsed parse_all();

 private:
  void load();
  const Kernel& parse(const Entry& entry);

  const void* fat_binary_;
  std::mutex mutex_;
  bool is_loaded_ = false;
  std::string text_;
  ModuleScope scope_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::unique_ptr<Kernel>> kernels_;
  std::vector<std::unique_ptr<std::byte[]>> variables_;
};

/// The chip that the judge stands for: 80 or 90, of $KVCAL_PTX_CHIP; 90 by default.
int chip();

/// The PTX of a fat binary for chip(): for that chip alone (sm_90a) if there is any, otherwise for
/// the newest one that is not newer. Ends the program where there is none, or where it is
/// compressed (nvcc -Xfatbin=-compress=false).
std::string ptx_of(const void* fat_binary);

/// Applies the change to PTX that $KVCAL_PTX_MUTATION asks for (tests/ptx/mutations.py), so that
/// the judge itself is judged. The value has four lines: part of kernels' names, a text in their
/// bodies, what replaces it, and which of its occurrences, from 0 or "all".
void mutate(std::string& text);

}  // namespace kvcal::ptx
