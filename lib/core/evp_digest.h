#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace kvcal {

/// A hash of OpenSSL's; for the sources that implement hashes.
class EvpDigest {
 public:
  explicit EvpDigest(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    // The first use loads OpenSSL's tables of algorithms, which can only fail for lack of memory.
    if (!context_ || EVP_DigestInit_ex(context_, kind, nullptr) != 1) {
      EVP_MD_CTX_free(context_);
      throw std::bad_alloc();
    }
  }
  ~EvpDigest() { EVP_MD_CTX_free(context_); }
  EvpDigest(const EvpDigest&) = delete;
  EvpDigest& operator=(const EvpDigest&) = delete;

  void update(std::span<const std::byte> bytes) {
    KVCAL_CHECK(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
  }
  /// The digest in lower-case hex; call it last.
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    KVCAL_CHECK(EVP_DigestFinal_ex(context_, digest.data(), &size) == 1);
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace kvcal
