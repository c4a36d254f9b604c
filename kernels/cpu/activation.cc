#include "kernels/cpu/amax_slot.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvcal::cpu::HWY_NAMESPACE {

template <Activation kActivation, Gate kGate, class Out>
HWY_NOINLINE Magnitudes activate_as(const ActivationBlock& block) {
  AmaxFold<Out> seen;
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* gate = block.gate + r * block.x_stride;
    activate_row<kActivation, kGate>({.gate = gate,
                                      .up = block.up ? block.up + r * block.x_stride : gate,
                                      .width = block.width,
                                      .function = block.activation},
                                     static_cast<Out*>(block.out) + r * block.out_stride, seen);
  }
  return seen.magnitudes();
}

template <Activation kActivation, Gate kGate>
Magnitudes choose_type(const ActivationBlock& block) {
  if (block.out_type == ComputeType::kFloat32) return activate_as<kActivation, kGate, float>(block);
  if (block.out_type == ComputeType::kFloat16) return activate_as<kActivation, kGate, F16>(block);
  return activate_as<kActivation, kGate, BF16>(block);
}

template <Activation kActivation>
Magnitudes choose_gate(const ActivationBlock& block) {
  if (!block.up) return choose_type<kActivation, Gate::kNone>(block);
  const bool is_plain = block.activation.limit == 0.0f && block.activation.gate_multiplier == 1.0f;
  if (!is_plain) return choose_type<kActivation, Gate::kAdjusted>(block);
  return choose_type<kActivation, Gate::kPlain>(block);
}

Magnitudes activate_rows(const ActivationBlock& block) {
  switch (block.activation.kind) {
    case Activation::kSilu:
      return choose_gate<Activation::kSilu>(block);
    case Activation::kGelu:
      return choose_gate<Activation::kGelu>(block);
    case Activation::kGeluTanh:
      return choose_gate<Activation::kGeluTanh>(block);
    case Activation::kQuickGelu:
      return choose_gate<Activation::kQuickGelu>(block);
    case Activation::kRelu:
      return choose_gate<Activation::kRelu>(block);
    case Activation::kSquaredRelu:
      return choose_gate<Activation::kSquaredRelu>(block);
    case Activation::kTanh:
      return choose_gate<Activation::kTanh>(block);
    case Activation::kXielu:
      break;
  }
  return choose_gate<Activation::kXielu>(block);
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

template <GateFunction kFunction>
Magnitudes multiply_gate_by(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  if (args.out_type == ComputeType::kFloat32)
    return multiply_gate_as<kFunction, float>(args, begin, end);
  if (args.out_type == ComputeType::kFloat16)
    return multiply_gate_as<kFunction, F16>(args, begin, end);
  return multiply_gate_as<kFunction, BF16>(args, begin, end);
}

Magnitudes multiply_gate_rows(const MultiplyGateArgs& args, int64_t begin, int64_t end) {
  if (args.function == GateFunction::kSilu)
    return multiply_gate_by<GateFunction::kSilu>(args, begin, end);
  if (args.function == GateFunction::kIdentity)
    return multiply_gate_by<GateFunction::kIdentity>(args, begin, end);
  if (args.function == GateFunction::kSoftplus)
    return multiply_gate_by<GateFunction::kSoftplus>(args, begin, end);
  return multiply_gate_by<GateFunction::kSigmoid>(args, begin, end);
}

}  // namespace kvcal::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvcal::cpu {
HWY_EXPORT(activate_rows);
HWY_EXPORT(multiply_gate_rows);

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

void CpuBackend::do_multiply_gate(const MultiplyGateArgs& args) {
  for_row_blocks(args.rows, args.heads * args.width, [&](int64_t begin, int64_t end) {
    fold_into(args.seen, HWY_DYNAMIC_DISPATCH(multiply_gate_rows)(args, begin, end));
  });
}

}  // namespace kvcal::cpu
#endif  // HWY_ONCE
