#include "core/git_blob_hash.h"

#include "core/evp_digest.h"

namespace kvcal {

struct GitBlobHash::State : EvpDigest {
  using EvpDigest::EvpDigest;
};

GitBlobHash::GitBlobHash(uint64_t size) : state_(std::make_unique<State>(EVP_sha1())) {
  std::string head = "blob " + std::to_string(size);
  head += '\0';
  update(std::as_bytes(std::span(head)));
}
GitBlobHash::~GitBlobHash() = default;

void GitBlobHash::update(std::span<const std::byte> bytes) {
  state_->update(bytes);
}
std::string GitBlobHash::hex() {
  return state_->hex();
}

}  // namespace kvcal
