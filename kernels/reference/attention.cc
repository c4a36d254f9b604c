#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"
#include "quant/fp8.h"
#include "quant/observations.h"

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
        if (reads(row))
          sum += weights[static_cast<size_t>(row - begin_)] *
                 stored(args_.v, args_.v_scales, value_dim, row, d);
      reference::store_float(args_.out_type, args_.out,
                             (query_ * args_.heads + head_) * value_dim + d,
                             static_cast<float>(sum));
    }
  }

 private:
  bool reads(int64_t row) const { return KeySelection::holds(selected_, row - first_key_); }
  /// Element d of a row of k or v, whose heads have `dim` elements.
  double stored(const void* rows, const float* scales, int64_t dim, int64_t row, int64_t d) const {
    return reference::load_kv(args_.kv_dtype, rows, (row * args_.kv_heads + kv_head_) * dim + d,
                              scales ? scales[kv_head_] : 1.0f);
  }

  double sink() const {
    return args_.sinks ? args_.sinks[head_] : -std::numeric_limits<double>::infinity();
  }
  double slope() const { return args_.slopes ? args_.slopes[head_] : 0.0; }
  double capped(double score) const {
    const double cap = args_.softcap;
    return cap > 0.0 ? cap * std::tanh(score / cap) : score;
  }

  double relative(int64_t distance) const {
    return reference::relative_logit(args_.relative, query_ * args_.heads + head_, distance);
  }

  std::vector<double> softmax() const {
    const float* q = args_.q + query_ * args_.q_row_stride + head_ * args_.head_dim;
    std::vector<double> scores(static_cast<size_t>(end_ - begin_),
                               -std::numeric_limits<double>::infinity());
    // The sink adds to the sum and has no value.
    double largest = sink();
    for (int64_t row = begin_; row < end_; ++row) {
      if (!reads(row)) continue;
      double sum = 0.0;
      for (int64_t d = 0; d < args_.head_dim; ++d)
        sum += q[d] * stored(args_.k, args_.k_scales, args_.head_dim, row, d);
      const double score = capped(sum * static_cast<double>(args_.softmax_scale)) +
                           slope() * static_cast<double>(row - (end_ - 1)) +
                           relative(end_ - 1 - row);
      scores[static_cast<size_t>(row - begin_)] = score;
      largest = std::max(largest, score);
    }
    double total = args_.sinks ? std::exp(sink() - largest) : 0.0;
    for (const double score : scores) total += std::exp(score - largest);
    if (args_.weight_scale > 0.0f) return rounded_weights(scores, largest, total);
    for (double& score : scores) score = std::exp(score - largest) / total;
    return scores;
  }

  /// Weights rounded to FP8 relative to the largest score of their tile of keys and those before.
  std::vector<double> rounded_weights(std::vector<double> scores, double largest,
                                      double total) const {
    double so_far = sink();
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
    if (cap > 0.0) sum = cap * std::tanh(sum / cap);
    const double slope = args.slopes ? args.slopes[head] : 0.0;
    sum += slope * static_cast<double>(key - (seen.end - 1));
    scores.push_back(sum + reference::relative_logit(args.relative, query * args.heads + head,
                                                     seen.end - 1 - key));
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

void ReferenceBackend::do_select_keys(const SelectKeysArgs& args) {
  std::vector<float> scores;
  std::vector<uint32_t> ordered;
  const auto score = [&](const float* q, const float* weights, const float* k) {
    double sum = 0.0;
    for (int64_t head = 0; head < args.heads; ++head) {
      double product = 0.0;
      for (int64_t d = 0; d < args.head_dim; ++d)
        product += static_cast<double>(q[head * args.head_dim + d]) * k[d];
      sum += (weights ? weights[head] : 1.0f) * std::max(product, 0.0);
    }
    return static_cast<float>(sum);
  };
  for (const Segment& segment : args.segments)
    for (int64_t i = 0; i < segment.q_count; ++i) {
      const int64_t row = segment.q_begin + i;
      const int64_t keys = segment.kv_count - segment.q_count + i + 1;
      scores.resize(static_cast<size_t>(keys / args.block));
      for (size_t key = 0; key < scores.size(); ++key)
        scores[key] =
            score(args.q + row * args.heads * args.head_dim,
                  args.weights ? args.weights + row * args.heads : nullptr,
                  args.k + (segment.kv_begin + static_cast<int64_t>(key)) * args.head_dim);
      select_blocks(scores, keys, args,
                    {args.out + row * args.row_words, static_cast<size_t>(args.row_words)},
                    ordered);
    }
}

namespace {

/// Folds one head or row of token t into range and bins.
void fold(const float* x, int64_t count, int64_t t, ObservedRange& range, uint64_t* bins) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(x[i])) {
      if (range.first_nonfinite < 0) range.first_nonfinite = static_cast<int32_t>(t);
      continue;
    }
    const float value = x[i] + 0.0f;  // -0 becomes +0, so that equal extremes have equal bytes
    range.min = std::min(range.min, value);
    range.max = std::max(range.max, value);
    if (bins) ++bins[MagnitudeHistogram::bin_of(value)];
  }
}

}  // namespace

void ReferenceBackend::do_observe_kv(const ObserveKvArgs& args) {
  for (size_t s = 0; s < args.segments.size(); ++s) {
    const Segment& segment = args.segments[s];
    for (int64_t h = 0; h < args.x.heads; ++h) {
      ObservedRange range = kEmptyRange;
      uint64_t* bins = args.histogram ? args.histogram + h * MagnitudeHistogram::kBins : nullptr;
      for (int64_t t = 0; t < segment.q_count; ++t) {
        const float* x =
            args.x.data + (segment.q_begin + t) * args.x.row_stride + h * args.x.head_dim;
        fold(x, args.x.head_dim, t, range, bins);
      }
      args.ranges[static_cast<int64_t>(s) * args.x.heads + h] = range;
    }
  }
}

void ReferenceBackend::do_observe_rows(const ObserveRowsArgs& args) {
  std::vector<float> row(static_cast<size_t>(args.width));
  for (size_t s = 0; s < args.segments.size(); ++s) {
    args.ranges[s] = kEmptyRange;
    for (int64_t t = 0; t < args.segments[s].q_count; ++t) {
      const int64_t first = (args.segments[s].q_begin + t) * args.width;
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = reference::load_float(args.type, args.x, first + static_cast<int64_t>(i));
      fold(row.data(), args.width, t, args.ranges[s], args.histogram);
    }
  }
}

void ReferenceBackend::do_store_kv(const StoreKvArgs& args) {
  const bool quantized = is_fp8(args.dtype);
  const float largest = quantized ? fp8::max_value(fp8_format(args.dtype)) : 0.0f;
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h)
      for (int64_t d = 0; d < args.x.head_dim; ++d) {
        const float x = args.x.data[t * args.x.row_stride + h * args.x.head_dim + d];
        const float scale = quantized ? args.scales[h] : 1.0f;
        reference::store_kv(args.dtype, args.out, (t * args.x.heads + h) * args.x.head_dim + d, x,
                            scale);
        if (quantized && args.saturated && std::isfinite(x) && std::fabs(x / scale) > largest)
          ++args.saturated[h];
      }
}

void ReferenceBackend::do_simulate_cache(const SimulateCacheArgs& args) {
  for (int64_t t = 0; t < args.x.tokens; ++t)
    for (int64_t h = 0; h < args.x.heads; ++h) {
      const CachedHead head = args.head(t, h);
      if (args.saturated)
        args.saturated[h] += static_cast<uint64_t>(count_clipped(args.format, head));
      round_trip(args.format, head);
    }
}

void ReferenceBackend::do_load_kv(const LoadKvArgs& args) {
  const int64_t head_dim = args.head_dim;
  for (int64_t row = 0; row < args.rows * args.heads; ++row) {
    const float scale = is_fp8(args.dtype) ? args.scales[row % args.heads] : 1.0f;
    for (int64_t i = row * head_dim; i < (row + 1) * head_dim; ++i)
      reference::store_float(args.out_type, args.out, i,
                             reference::load_kv(args.dtype, args.x, i, scale));
  }
}

std::unique_ptr<Backend> make_reference_backend(const BackendOptions&) {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace kvcal
