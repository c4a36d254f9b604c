#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

namespace kvcal {

namespace {

/// One query of one head against the keys it sees, in double.
class OneQuery {
 public:
  OneQuery(const AttentionArgs& args, const Segment& segment, int64_t head, int64_t query)
      : args_(args), query_(query), head_(head), kv_head_(head / (args.heads / args.kv_heads)) {
    const int64_t position = segment.kv_count - segment.q_count + query - segment.q_begin;
    const int64_t first =
        args.sliding_window > 0 ? std::max<int64_t>(0, position - args.sliding_window + 1) : 0;
    begin_ = segment.kv_begin + first;
    end_ = segment.kv_begin + position + 1;
  }

  void run() const {
    const std::vector<double> weights = softmax();
    for (int64_t d = 0; d < args_.head_dim; ++d) {
      double sum = 0.0;
      for (int64_t row = begin_; row < end_; ++row)
        sum += weights[static_cast<size_t>(row - begin_)] * value(row, d);
      const int64_t column = head_ * args_.head_dim + d;
      reference::store_float(args_.out_type, args_.out,
                             query_ * args_.heads * args_.head_dim + column,
                             static_cast<float>(sum));
    }
  }

 private:
  int64_t element(int64_t row, int64_t d) const {
    return (row * args_.kv_heads + kv_head_) * args_.head_dim + d;
  }
  double key(int64_t row, int64_t d) const {
    const float scale = args_.k_scales ? args_.k_scales[kv_head_] : 1.0f;
    return reference::load_kv(args_.kv_dtype, args_.k, element(row, d), scale);
  }
  double value(int64_t row, int64_t d) const {
    const float scale = args_.v_scales ? args_.v_scales[kv_head_] : 1.0f;
    return reference::load_kv(args_.kv_dtype, args_.v, element(row, d), scale);
  }

  std::vector<double> softmax() const {
    const float* q = args_.q + query_ * args_.q_row_stride + head_ * args_.head_dim;
    std::vector<double> scores(static_cast<size_t>(end_ - begin_));
    double largest = -std::numeric_limits<double>::infinity(), total = 0.0;
    for (int64_t row = begin_; row < end_; ++row) {
      double sum = 0.0;
      for (int64_t d = 0; d < args_.head_dim; ++d) sum += q[d] * key(row, d);
      sum *= static_cast<double>(args_.softmax_scale);
      scores[static_cast<size_t>(row - begin_)] = sum;
      largest = std::max(largest, sum);
    }
    for (double& score : scores) total += score = std::exp(score - largest);
    for (double& score : scores) score /= total;
    return scores;
  }

  const AttentionArgs& args_;
  int64_t query_, head_, kv_head_;
  int64_t begin_ = 0, end_ = 0;  ///< rows of k and v this query sees
};

}  // namespace

void ReferenceBackend::attention(const AttentionArgs& args) {
  check_attention(args);
  for (const Segment& segment : args.segments)
    for (int64_t query = segment.q_begin; query < segment.q_begin + segment.q_count; ++query)
      for (int64_t head = 0; head < args.heads; ++head) OneQuery(args, segment, head, query).run();
}

}  // namespace kvcal
