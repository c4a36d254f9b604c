#include "core/sha256.h"

#include "core/evp_digest.h"
#include "core/file.h"

namespace kvcal {

struct Sha256::State : EvpDigest {
  using EvpDigest::EvpDigest;
};

Sha256::Sha256() : state_(std::make_unique<State>(EVP_sha256())) {}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  state_->update(bytes);
}
void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() {
  return state_->hex();
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
