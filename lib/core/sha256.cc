#include "core/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <new>

#include "core/error.h"
#include "core/file.h"

namespace kvcal {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  // The first use loads OpenSSL's tables of algorithms, which can only fail for lack of memory.
  if (!state_->context || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
    throw std::bad_alloc();
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  KVCAL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}
void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  KVCAL_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

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

}  // namespace kvcal
