#include <algorithm>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace kvcal {

void ReferenceBackend::do_select_keys(const SelectKeysArgs& args) {
  std::vector<float> scores;
  std::vector<uint32_t> ordered;
  const auto score = [&](const float* q, const float* weights, const float* k) {
    double sum = 0.0;
    for (int64_t head = 0; head < args.heads; ++head) {
      double product = 0.0;
      for (int64_t d = 0; d < args.head_dim; ++d)
        product += static_cast<double>(q[head * args.head_dim + d]) * k[d];
      sum += weights[head] * std::max(product, 0.0);
    }
    return static_cast<float>(sum);
  };
  for (const Segment& segment : args.segments)
    for (int64_t i = 0; i < segment.q_count; ++i) {
      const int64_t row = segment.q_begin + i;
      scores.resize(static_cast<size_t>(segment.kv_count - segment.q_count + i + 1));
      for (size_t key = 0; key < scores.size(); ++key)
        scores[key] =
            score(args.q + row * args.heads * args.head_dim, args.weights + row * args.heads,
                  args.k + (segment.kv_begin + static_cast<int64_t>(key)) * args.head_dim);
      select_largest(scores, args.topk,
                     {args.out + row * args.row_words, static_cast<size_t>(args.row_words)},
                     ordered);
    }
}

}  // namespace kvcal
