#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/fp8.h"

namespace kvcal {

namespace {

/// One query of one head against its visible keys, in double.
class OneQuery {
 public:
  OneQuery(const AttentionArgs& args, const Segment& segment, int64_t head, int64_t query)
      : args_(args), query_(query), head_(head), kv_head_(head / (args.heads / args.kv_heads)) {
    const int64_t position = segment.kv_count - segment.q_count + query - segment.q_begin;
    const int64_t first =
        args.sliding_window > 0 ? std::max<int64_t>(0, position - args.sliding_window + 1) : 0;
    begin_ = segment.kv_begin + first;
    end_ = segment.kv_begin + position + 1;
    first_key_ = segment.kv_begin;
    selected_ = args.selection.row(query);
  }

  void run() const {
    const std::vector<double> weights = softmax();
    const int64_t value_dim = args_.value_dim();
    for (int64_t d = 0; d < value_dim; ++d) {
      double sum = 0.0;
      for (int64_t row = begin_; row < end_; ++row)
        if (reads(row)) sum += weights[static_cast<size_t>(row - begin_)] * value(row, d);
      reference::store_float(args_.out_type, args_.out,
                             (query_ * args_.heads + head_) * value_dim + d,
                             static_cast<float>(sum));
    }
  }

 private:
  bool reads(int64_t row) const { return KeySelection::holds(selected_, row - first_key_); }
  double key(int64_t row, int64_t d) const {
    const float scale = args_.k_scales ? args_.k_scales[kv_head_] : 1.0f;
    return reference::load_kv(args_.kv_dtype, args_.k,
                              (row * args_.kv_heads + kv_head_) * args_.head_dim + d, scale);
  }
  double value(int64_t row, int64_t d) const {
    const float scale = args_.v_scales ? args_.v_scales[kv_head_] : 1.0f;
    return reference::load_kv(args_.kv_dtype, args_.v,
                              (row * args_.kv_heads + kv_head_) * args_.value_dim() + d, scale);
  }

  double capped(double score) const {
    const double cap = args_.softcap;
    return cap > 0.0 ? cap * std::tanh(score / cap) : score;
  }

  std::vector<double> softmax() const {
    const float* q = args_.q + query_ * args_.q_row_stride + head_ * args_.head_dim;
    std::vector<double> scores(static_cast<size_t>(end_ - begin_),
                               -std::numeric_limits<double>::infinity());
    // The sink adds to the sum and has no value.
    double largest = args_.sinks ? args_.sinks[head_] : -std::numeric_limits<double>::infinity();
    for (int64_t row = begin_; row < end_; ++row) {
      if (!reads(row)) continue;
      double sum = 0.0;
      for (int64_t d = 0; d < args_.head_dim; ++d) sum += q[d] * key(row, d);
      const double score = capped(sum * static_cast<double>(args_.softmax_scale));
      scores[static_cast<size_t>(row - begin_)] = score;
      largest = std::max(largest, score);
    }
    double total = args_.sinks ? std::exp(args_.sinks[head_] - largest) : 0.0;
    for (const double score : scores) total += std::exp(score - largest);
    if (args_.weight_scale > 0.0f) return rounded_weights(scores, largest, total);
    for (double& score : scores) score = std::exp(score - largest) / total;
    return scores;
  }

  /// Weights rounded to FP8 relative to the largest score of their tile of keys and those before.
  std::vector<double> rounded_weights(std::vector<double> scores, double largest,
                                      double total) const {
    double so_far = args_.sinks ? args_.sinks[head_] : -std::numeric_limits<double>::infinity();
    const double scale = args_.weight_scale;
    for (int64_t row = begin_; row < end_;) {
      const int64_t tile = (row - first_key_) / kFp8AttentionKeys + 1;
      const int64_t end = std::min(end_, first_key_ + tile * kFp8AttentionKeys);
      const std::span<double> own(scores.begin() + (row - begin_), scores.begin() + (end - begin_));
      so_far = std::max(so_far, *std::ranges::max_element(own));
      for (double& score : own) {
        if (std::isinf(score)) {
          score = 0.0;
          continue;
        }
        const auto weight = static_cast<float>(std::exp(score - so_far) / scale);
        const uint8_t code = fp8::encode(weight, fp8::Format::kE4m3Fn);
        score = scale * static_cast<double>(fp8::decode(code, fp8::Format::kE4m3Fn)) *
                std::exp(so_far - largest) / total;
      }
      row = end;
    }
    return scores;
  }

  const AttentionArgs& args_;
  int64_t query_, head_, kv_head_;
  int64_t begin_ = 0, end_ = 0;  ///< rows of k and v this query sees
  int64_t first_key_ = 0;        ///< row of its sequence's first key
  const uint32_t* selected_ = nullptr;
};

}  // namespace

void ReferenceBackend::do_attention(const AttentionArgs& asked) {
  const AttentionArgs args = with_current_segments(asked);
  for (const Segment& segment : args.segments)
    for (int64_t query = segment.q_begin; query < segment.q_begin + segment.q_count; ++query)
      for (int64_t head = 0; head < args.heads; ++head) OneQuery(args, segment, head, query).run();
  observe_attended(args);
}

}  // namespace kvcal
