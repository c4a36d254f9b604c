// OpenSSL hashes files: a manifest names its inputs by hash, and hashing gigabytes should not be
// code of our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_st;
struct evp_md_ctx_st;

namespace kvcal {

/// 64-bit XXH3 of the bytes, as fast as memory is read. Detects damage, not tampering.
uint64_t hash64(std::span<const std::byte> bytes);

/// A cryptographic hash of a stream, as lower-case hex.
class Digest {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// The digest; call it last.
  std::string hex();

 protected:
  /// kind: one of OpenSSL's.
  explicit Digest(const evp_md_st* kind);

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

class Sha256 : public Digest {
 public:
  Sha256();
};

std::string sha256_hex(std::string_view text);
/// Throws Error if the file cannot be read.
std::string sha256_of_file(const std::filesystem::path& path);

/// The name that git gives a file of `size` bytes: SHA-1 over "blob <size>\0" and the bytes.
class GitBlobHash : public Digest {
 public:
  explicit GitBlobHash(uint64_t size);
};

}  // namespace kvcal
