#include "kernels/cpu/amax_slot.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"
#include "kernels/with_type.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

template <Activation kActivation, Gate kGate, class Out>
HWY_NOINLINE Magnitudes activate_as(const ActivationBlock& block) {
  const ActivationFunction function = block.activation;
  AmaxFold<Out> seen;
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* gate = block.gate + r * block.x_stride;
    const float* up = block.up ? block.up + r * block.x_stride : gate;
    Out* out = static_cast<Out*>(block.out) + r * block.out_stride;
    store_row(block.width, out, [&](auto at) HWY_ATTR {
      return seen.fold(at, gated<kActivation, kGate>(at.load(gate), at.load(up), function));
    });
    seen.end_row(out, block.width);
  }
  return seen.magnitudes();
}

Magnitudes activate_rows(const ActivationBlock& block) {
  const bool is_plain = block.activation.limit == 0.0f && block.activation.gate_multiplier == 1.0f;
  const Gate kind = !block.up ? Gate::kNone : is_plain ? Gate::kPlain : Gate::kAdjusted;
  return with_activation(block.activation.kind, [&](auto activation) {
    return with_value<Gate::kNone, Gate::kPlain, Gate::kAdjusted>(kind, [&](auto gate) {
      return with_type(block.out_type, [&](auto out) {
        return activate_as<activation(), gate(), decltype(out)>(block);
      });
    });
  });
}

template <GateFunction kFunction, class Out>
HWY_NOINLINE Magnitudes multiply_gate_as(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  const int64_t head_stride = args.gate_stride();
  AmaxFold<Out> seen;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t h = 0; h < args.heads; ++h) {
      Out* out = static_cast<Out*>(args.out) + (t * args.heads + h) * args.width;
      const float* x = args.x.data + t * args.x.row_stride + h * args.width;
      const float* gate = args.gate.data + t * args.gate.row_stride + h * head_stride;
      if (args.gate_per_head)
        factor_row(x, gate_of<kFunction>(set(*gate)), args.width, out, seen);
      else
        gate_row<kFunction>(x, gate, args.width, out, seen);
      seen.end_row(out, args.width);
    }
  return seen.magnitudes();
}

Magnitudes multiply_gate_rows(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  return with_gate(args.function, [&](auto function) {
    return with_type(args.out_type, [&](auto out) {
      return multiply_gate_as<function(), decltype(out)>(args, begin, end);
    });
  });
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(activate_rows);

Magnitudes activate_block(const ActivationBlock& block) {
  return HWY_DYNAMIC_DISPATCH(activate_rows)(block);
}

void CpuBackend::do_activate(const ActivationArgs& args) {
  const int64_t stride = args.gated ? 2 * args.width : args.width;
  const int64_t row_bytes = args.width * static_cast<int64_t>(bytes_of(args.out_type));
  for_row_blocks(args.rows, args.width, [&](int64_t begin, int64_t end) {
    const float* gate = args.x + begin * stride;
    fold_into(args.seen,
              activate_block({.gate = gate,
                              .up = args.gated ? gate + args.width : nullptr,
                              .x_stride = stride,
                              .rows = end - begin,
                              .width = args.width,
                              .activation = args.activation,
                              .out_type = args.out_type,
                              .out = static_cast<std::byte*>(args.out) + begin * row_bytes,
                              .out_stride = args.width}));
  });
}

KVCAL_BY_ROWS(multiply_gate, MultiplyGateArgs, args.rows, args.heads* args.width)

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
