// Hashes of n-grams. The expected numbers are those of transformers 5.24,
// `Qwen4ExpTextNGramEmbedding`.
#include "family/ngram_hashes.h"

#include <vector>

#include "support/catch.h"

namespace kvcal {
namespace {

using Numbers = std::vector<int64_t>;

const NgramConfig kSmall{.longest = 4,
                         .hashes = 2,
                         .width = 12,
                         .kernel = 4,
                         .separator = 7,
                         .least_rows = 50,
                         .seed = 1234};

TEST_CASE("ngram_hashes: factors and rows are transformers'") {
  const NgramHashes second = ngram_hashes(kSmall, 1000, 1);
  CHECK(second.factors ==
        Numbers{4267378739598939, 4349150978695757, 1976354410462589, 6305555528461919});
  CHECK(second.sizes == Numbers{79, 83, 89, 97, 101, 103});
  CHECK(second.offsets == Numbers{0, 79, 162, 251, 348, 449});
  CHECK(second.rows() == 552);
}

TEST_CASE("ngram_hashes: those of a published size") {
  const NgramConfig config{.longest = 3,
                           .hashes = 8,
                           .width = 2048,
                           .kernel = 4,
                           .least_rows = 20'000'000,
                           .seed = 1234};
  CHECK(ngram_hashes(config, 248320, 0).sizes.front() == 20'000'003);
  const NgramHashes second = ngram_hashes(config, 248320, 1);
  CHECK(second.factors == Numbers{3352040966061, 19752442147475, 10742103100073});
  CHECK(second.sizes.front() == 20'000'213);
  CHECK(second.sizes.back() == 20'000'429);
}

TEST_CASE("append_ngram_rows: n-grams end at the token and do not reach behind a separator") {
  const std::vector<int32_t> ids{7, 7, 7, 3, 999, 7, 5, 6, 8};  // three before the first
  const NgramHashes hashes = ngram_hashes(kSmall, 1000, 1);
  Numbers rows;
  for (size_t token = 0; token < 6; ++token)
    append_ngram_rows(kSmall, hashes, std::span(ids).subspan(token, 4), rows);
  CHECK(rows == Numbers{57, 123, 238, 339, 371, 519, 38, 141, 242, 262, 369, 497,
                        76, 89,  188, 309, 428, 545, 22, 82,  248, 330, 364, 503,
                        6,  139, 183, 324, 375, 457, 67, 139, 228, 339, 421, 472});
}

}  // namespace
}  // namespace kvcal
