#pragma once

// The list of operations. One line declares an operation everywhere: Backend::norm checks its
// NormArgs and calls the virtual do_norm, which each backend defines. A new operation needs its
// line here, its arguments in a header of this folder, and their Backend::check in
// argument_checks.cc.

// clang-format off

/// Calls row(name, arguments) for each operation that every backend defines.
#define KVCAL_OPERATIONS(row)                  \
  row(embed, EmbedArgs)                        \
  row(norm, NormArgs)                          \
  row(norm_heads, NormHeadsArgs)               \
  row(matmul, MatmulArgs)                      \
  row(rope, RopeArgs)                          \
  row(observe_kv, ObserveKvArgs)               \
  row(observe_rows, ObserveRowsArgs)           \
  row(store_kv, StoreKvArgs)                   \
  row(load_kv, LoadKvArgs)                     \
  row(simulate_cache, SimulateCacheArgs)       \
  row(copy_heads, CopyHeadsArgs)               \
  row(select_keys, SelectKeysArgs)             \
  row(attention, AttentionArgs)                \
  row(attention_weights, AttentionWeightsArgs) \
  row(activate, ActivationArgs)                \
  row(add, AddArgs)                            \
  row(scale, ScaleArgs)                        \
  row(clamp, ClampArgs)                        \
  row(multiply_gate, MultiplyGateArgs)         \
  row(gated_norm, GatedNormArgs)               \
  row(causal_conv, CausalConvArgs)             \
  row(ssm_scan, SsmScanArgs)                   \
  row(delta_scan, DeltaScanArgs)               \
  row(mix_streams, MixStreamsArgs)             \
  row(connect_streams, ConnectStreamsArgs)     \
  row(attend_streams, AttendStreamsArgs)       \
  row(gate_by_keys, GateByKeysArgs)            \
  row(match_magnitude, MatchMagnitudeArgs)     \
  row(keep_outliers, KeepOutliersArgs)         \
  row(route, RouteArgs)                        \
  row(gather_rows, GatherRowsArgs)             \
  row(combine_rows, CombineRowsArgs)           \
  row(observe_amax, ObserveAmaxArgs)           \
  row(quantize_rows, QuantizeRowsArgs)         \
  row(matmul_fp8, Fp8MatmulArgs)

/// The same for fused operations, which do several of the above in one pass. A backend that does
/// not define one runs the separate operations.
#define KVCAL_FUSED_OPERATIONS(row)    \
  row(residual_norm, ResidualNormArgs) \
  row(enter_cache, EnterCacheArgs)     \
  row(matmul_groups, MatmulGroupsArgs) \
  row(matmul_activate, MatmulActivateArgs)

// clang-format on

/// Declares a row in a class that derives from Backend.
#define KVCAL_OVERRIDE_OPERATION(name, Args) void do_##name(const Args& args) override;
