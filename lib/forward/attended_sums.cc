#include "forward/attended_sums.h"

namespace kvcal {

const float* AttendedSums::attend_before_attention(const float* hidden) {
  attend(hidden, sums_before(), layer().attention_scores, buffers_.active.as<float>());
  return attended();
}

void AttendedSums::begin_layer(float* hidden) {
  if (!begins_block()) return;
  const auto clear = [&](int64_t sum) {
    backend_.fill_zero(reinterpret_cast<std::byte*>(hidden + sum * sum_size()),
                       static_cast<size_t>(sum_size()) * sizeof(float));
  };
  copy(hidden, view(hidden + (1 + sums_before()) * sum_size(), config_.hidden_size));
  clear(0);
  if (context_.layer_index > 0) return;
  // So that the sums of later blocks hold the same bytes in every run.
  for (int64_t i = 2; i < config_.streams; ++i) clear(i);
}

const float* AttendedSums::attend_before_mlp(const float* hidden) {
  attend(hidden, sums_before() + (begins_block() ? 1 : 0), layer().mlp_scores,
         buffers_.active.as<float>());
  return attended();
}

void AttendedSums::end_layer(float* hidden) {
  if (!layer().final_scores.exists()) return;
  attend(hidden, config_.streams - 1, layer().final_scores, hidden);
}

void AttendedSums::attend(const float* hidden, int64_t others, const PackedValues& scores,
                          float* out) {
  backend_.attend_streams({.x = hidden,
                           .weight = scores.get(),
                           .epsilon = config_.norm_eps,
                           .streams = 1 + others,
                           .rows = rows(),
                           .width = config_.hidden_size,
                           .out = out});
}

}  // namespace kvcal
