#include "core/hash.h"

#include <array>
#include <new>

#include <openssl/evp.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/error.h"
#include "core/file.h"

namespace kvcal {

uint64_t hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void Digest::Free::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

Digest::Digest(const evp_md_st* kind) : context_(EVP_MD_CTX_new()) {
  // The first use loads OpenSSL's tables of algorithms, which can only fail for lack of memory.
  if (!context_ || EVP_DigestInit_ex(context_.get(), kind, nullptr) != 1) throw std::bad_alloc();
}

void Digest::update(std::span<const std::byte> bytes) {
  KVCAL_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  KVCAL_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

Sha256::Sha256() : Digest(EVP_sha256()) {}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  Sha256 hash;
  constexpr size_t kPart = size_t{64} << 20;
  std::span<const std::byte> rest = file.bytes();
  while (!rest.empty()) {
    const auto part = rest.first(std::min(kPart, rest.size()));
    hash.update(part);
    file.drop(part);
    rest = rest.subspan(part.size());
  }
  return hash.hex();
}

GitBlobHash::GitBlobHash(uint64_t size) : Digest(EVP_sha1()) {
  update("blob " + std::to_string(size));
  update(std::string_view("\0", 1));
}

}  // namespace kvcal
