#include <cmath>
#include <vector>

#include "kernels/reference/elements.h"
#include "kernels/reference/reference_backend.h"

// States are rounded to float32 after each step, as they are stored between calls: a continued
// sequence must give the bytes of one run.
namespace kvcal {

namespace {

double softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

/// State of a segment: the caller's, or zeros in `own`.
float* state_of(float* state, size_t segment, int64_t count, std::vector<float>& own) {
  if (state) return state + static_cast<int64_t>(segment) * count;
  own.assign(static_cast<size_t>(count), 0.0f);
  return own.data();
}

/// Row p of the segment; rows before it come from the state.
const float* conv_row(const CausalConvArgs& args, int64_t begin, const float* state, int64_t p) {
  return p >= 0 ? args.x.data + (begin + p) * args.x.row_stride
                : state + (p + args.kernel - 1) * args.channels;
}

void convolve(const CausalConvArgs& args, const Segment& segment, float* state) {
  const int64_t before = args.kernel - 1;
  const int64_t stride = args.out_row_stride();
  for (int64_t t = 0; t < segment.q_count; ++t)
    for (int64_t c = 0; c < args.channels; ++c) {
      double sum = args.bias ? args.bias[c] : 0.0f;
      for (int64_t j = 0; j < args.kernel; ++j)
        sum += static_cast<double>(args.weight[c * args.kernel + j]) *
               conv_row(args, segment.q_begin, state, t - before + j)[c];
      args.out[(segment.q_begin + t) * stride + c] =
          static_cast<float>(args.silu ? sum * reference::logistic(sum) : sum);
    }
  for (int64_t i = 0; i < before; ++i) {  // reads at or behind what it writes
    const float* row = conv_row(args, segment.q_begin, state, segment.q_count - before + i);
    for (int64_t c = 0; c < args.channels; ++c) state[i * args.channels + c] = row[c];
  }
}

/// Updates the states of one head by one token.
void ssm_step(const SsmScanArgs& args, int64_t row, int64_t head, float* states) {
  const int64_t group = head / (args.heads / args.groups);
  const float* b = args.b.data + row * args.b.row_stride + group * args.state_dim;
  const float* c = args.c.data + row * args.c.row_stride + group * args.state_dim;
  const float* x = args.x.data + row * args.x.row_stride + head * args.head_dim;
  const int64_t stride = args.out_row_stride();
  float* out = args.out + row * stride + head * args.head_dim;
  const double bias = args.dt_bias ? args.dt_bias[head] : 0.0f;
  double dt = softplus(args.dt.data[row * args.dt.row_stride + head] + bias);
  if (dt < args.dt_min) dt = args.dt_min;
  if (dt > args.dt_max) dt = args.dt_max;
  for (int64_t i = 0; i < args.head_dim; ++i) {
    double sum = args.d ? static_cast<double>(args.d[head]) * x[i] : 0.0;
    for (int64_t n = 0; n < args.state_dim; ++n) {
      const double a = args.a_per_state ? args.a[head * args.state_dim + n] : args.a[head];
      float& state = states[i * args.state_dim + n];
      state = static_cast<float>(std::exp(dt * a) * state + dt * x[i] * b[n]);
      sum += static_cast<double>(state) * c[n];
    }
    out[i] = static_cast<float>(sum);
  }
}

/// x · scale, normalized to length 1 first where the rule requires it.
std::vector<double> unit_row(const float* x, int64_t count, bool normalize, double scale) {
  double squares = 0.0;
  for (int64_t i = 0; i < count; ++i) squares += static_cast<double>(x[i]) * x[i];
  if (normalize) scale /= std::sqrt(squares + 1e-6);
  std::vector<double> result(x, x + count);
  for (double& value : result) value *= scale;
  return result;
}

/// Updates the state of one value head by one token.
void delta_step(const DeltaScanArgs& args, int64_t row, int64_t head, float* state) {
  const int64_t k_head = head / (args.v_heads / args.k_heads), v_dim = args.v_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(args.k_dim));
  const auto q = unit_row(args.q.data + row * args.q.row_stride + k_head * args.k_dim, args.k_dim,
                          args.normalize, scale);
  const auto k = unit_row(args.k.data + row * args.k.row_stride + k_head * args.k_dim, args.k_dim,
                          args.normalize, 1.0);
  const float* v = args.v.data + row * args.v.row_stride + head * v_dim;
  const int64_t stride = args.out_row_stride();
  float* out = args.out + row * stride + head * v_dim;
  std::vector<double> decay(static_cast<size_t>(args.k_dim));
  for (int64_t i = 0; i < args.k_dim; ++i) {
    const int64_t at = args.decay_per_key ? head * args.k_dim + i : head;
    double g = args.g.data[row * args.g.row_stride + at];
    if (args.decay_rate) {
      const double rate = args.decay_rate[head];
      g += args.g_bias ? args.g_bias[at] : 0.0f;
      g = args.decay_floor < 0.0f ? args.decay_floor * reference::logistic(-rate * g)
                                  : rate * softplus(g);
    }
    decay[static_cast<size_t>(i)] = std::exp(g);
  }
  double beta = args.beta.data[row * args.beta.row_stride + head];
  if (args.logistic_beta) beta = args.beta_range * reference::logistic(beta);
  for (int64_t c = 0; c < v_dim; ++c) {
    double known = 0.0, sum = 0.0;
    for (int64_t i = 0; i < args.k_dim; ++i)
      known += k[static_cast<size_t>(i)] * decay[static_cast<size_t>(i)] * state[i * v_dim + c];
    const double delta = beta * (v[c] - known);
    for (int64_t i = 0; i < args.k_dim; ++i) {
      float& s = state[i * v_dim + c];
      s = static_cast<float>(decay[static_cast<size_t>(i)] * s + k[static_cast<size_t>(i)] * delta);
      sum += q[static_cast<size_t>(i)] * s;
    }
    out[c] = static_cast<float>(sum);
  }
}

}  // namespace

void ReferenceBackend::do_causal_conv(const CausalConvArgs& args) {
  std::vector<float> own;
  for (size_t s = 0; s < args.segments.size(); ++s)
    convolve(args, args.segments[s],
             state_of(args.state, s, (args.kernel - 1) * args.channels, own));
}

void ReferenceBackend::do_ssm_scan(const SsmScanArgs& args) {
  const int64_t size = args.head_dim * args.state_dim;
  std::vector<float> own;
  for (size_t s = 0; s < args.segments.size(); ++s) {
    float* state = state_of(args.state, s, args.heads * size, own);
    for (int64_t t = 0; t < args.segments[s].q_count; ++t)
      for (int64_t h = 0; h < args.heads; ++h)
        ssm_step(args, args.segments[s].q_begin + t, h, state + h * size);
  }
}

void ReferenceBackend::do_delta_scan(const DeltaScanArgs& args) {
  const int64_t size = args.k_dim * args.v_dim;
  std::vector<float> own;
  for (size_t s = 0; s < args.segments.size(); ++s) {
    float* state = state_of(args.state, s, args.v_heads * size, own);
    for (int64_t t = 0; t < args.segments[s].q_count; ++t)
      for (int64_t h = 0; h < args.v_heads; ++h)
        delta_step(args, args.segments[s].q_begin + t, h, state + h * size);
  }
}

}  // namespace kvcal
