#include "quant/quant_args.h"

namespace kvcal {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

std::string name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::kTensor:
      return "tensor";
    case Strategy::kChannel:
      return "channel";
    case Strategy::kGroup:
      return "group";
    case Strategy::kBlock:
      return "block";
    case Strategy::kToken:
      return "token";
    case Strategy::kTensorGroup:
      return "tensor_group";
    case Strategy::kAttnHead:
      return "attn_head";
  }
  return "";
}

std::string name_of(QuantType type) {
  return type == QuantType::kInt ? "int" : "float";
}

Strategy resolved_strategy(const QuantArgs& args) {
  if (args.strategy) return *args.strategy;
  if (!args.group_size) return Strategy::kTensor;
  if (*args.group_size > 0) return Strategy::kGroup;
  if (*args.group_size == -1) return Strategy::kChannel;
  fail("group_size: found ", *args.group_size,
       ", expected a positive size, or -1 for one scale a channel");
}

Json to_json(const QuantArgs& args) {
  return {{"actorder", or_null(args.actorder)},
          {"block_structure", or_null(args.block_structure)},
          {"dynamic", args.dynamic},
          {"group_size", or_null(args.group_size)},
          {"num_bits", args.num_bits},
          {"observer", or_null(args.observer)},
          {"observer_kwargs", args.observer_kwargs},
          {"scale_dtype", or_null(args.scale_dtype)},
          {"strategy", name_of(resolved_strategy(args))},
          {"symmetric", args.symmetric},
          {"type", name_of(args.type)},
          // A symmetric scheme has no zero point: compressed-tensors always writes null.
          {"zp_dtype", args.symmetric ? Json(nullptr) : or_null(args.zp_dtype)}};
}

}  // namespace kvcal
