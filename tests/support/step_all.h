#pragma once

#include <span>
#include <vector>

#include "forward/decoder.h"

namespace kvcal::test {

/// Decoder::step with the logits after every id: [ids, vocab_size].
inline std::vector<float> step_all(Decoder& decoder, std::span<const TokenId> ids, KvCache& cache) {
  return decoder.logits_of(decoder.step_hidden(ids, cache), 0, std::ssize(ids));
}

}  // namespace kvcal::test
