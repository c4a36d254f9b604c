#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference_backend.h"

namespace kvcal {
namespace {

/// Natural logarithms of the weights of the keys that a query sees, and of the sink.
std::vector<double> log_weights(const AttentionWeightsArgs& args, int64_t query, int64_t head) {
  const KeySpan& seen = args.seen[static_cast<size_t>(query)];
  const int64_t kv_head = head / (args.heads / args.kv_heads);
  const float* q = args.q + (query * args.heads + head) * args.head_dim;
  std::vector<double> scores;
  for (int64_t key = seen.begin; key < seen.end; ++key) {
    const float* k = args.k + (key * args.kv_heads + kv_head) * args.head_dim;
    double sum = 0.0;
    for (int64_t d = 0; d < args.head_dim; ++d) sum += static_cast<double>(q[d]) * k[d];
    sum *= static_cast<double>(args.softmax_scale);
    const double cap = args.softcap;
    scores.push_back(cap > 0.0 ? cap * std::tanh(sum / cap) : sum);
  }
  if (args.sinks) scores.push_back(args.sinks[head]);
  const double largest = std::ranges::max(scores);
  double total = 0.0;
  for (const double score : scores) total += std::exp(score - largest);
  for (double& score : scores) score -= largest + std::log(total);
  return scores;
}

}  // namespace

void ReferenceBackend::do_attention_weights(const AttentionWeightsArgs& args) {
  for (int64_t query = 0; query < std::ssize(args.seen); ++query)
    for (int64_t head = 0; head < args.heads; ++head) {
      const KeySpan& seen = args.seen[static_cast<size_t>(query)];
      const int64_t kv_head = head / (args.heads / args.kv_heads), row = query * args.heads + head;
      const std::vector<double> logs = log_weights(args, query, head);
      std::ranges::transform(logs, args.log_weights + row * args.weights_stride,
                             [](double log) { return static_cast<float>(log); });
      for (int64_t d = 0; d < args.v_head_dim; ++d) {
        double sum = 0.0;
        for (int64_t key = seen.begin; key < seen.end; ++key)
          sum += std::exp(logs[static_cast<size_t>(key - seen.begin)]) *
                 args.v[(key * args.kv_heads + kv_head) * args.v_head_dim + d];
        args.out[row * args.v_head_dim + d] = static_cast<float>(sum);
      }
    }
}

}  // namespace kvcal
