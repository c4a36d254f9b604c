#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace kvcal {

/// The name that git gives a file of `size` bytes: SHA-1 over "blob <size>\0" and the bytes.
class GitBlobHash {
 public:
  explicit GitBlobHash(uint64_t size);
  ~GitBlobHash();
  GitBlobHash(const GitBlobHash&) = delete;
  GitBlobHash& operator=(const GitBlobHash&) = delete;

  void update(std::span<const std::byte> bytes);
  /// The hash in lower-case hex; call it last.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvcal
