#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "warp.h"

namespace kvcal::ptx {

void note(const std::string& message) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "ptx: %s\n", message.c_str());
  std::fflush(stderr);
}

void stop(const std::string& message) {
  // Blocks run on several threads; the first finding is the one to tell.
  static std::mutex mutex;
  mutex.lock();
  note("error: " + message);
  std::abort();
}

void stop(const Warp& warp, const Instruction& instruction, const std::string& what) {
  const Block& block = warp.block();
  std::ostringstream text;
  text << what << ": kernel " << block.kernel.name << ", line " << instruction.line << ", `"
       << instruction.text << "`, block (" << block.index[0] << ", " << block.index[1] << ", "
       << block.index[2] << "), warp " << warp.id();
  stop(text.str());
}

std::string hex(uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return text.str();
}

}  // namespace kvcal::ptx
