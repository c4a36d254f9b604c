#include <limits>

#include "backend/backend.h"
#include "backend/pack_shape.h"
#include "core/error.h"

namespace kvcal {

namespace {

void check_heads(const HeadsView& x) {
  KVCAL_CHECK(x.tokens >= 0 && x.heads > 0 && x.head_dim > 0);
  KVCAL_CHECK(x.row_stride >= x.heads * x.head_dim);
}

/// Heads beside a latent may have no dimensions.
void check_cached_heads(const HeadsView& x) {
  KVCAL_CHECK(x.tokens >= 0 && x.heads > 0 && x.head_dim >= 0);
  KVCAL_CHECK(x.row_stride >= x.heads * x.head_dim);
}

/// Every segment names rows in [0, rows).
void check_segments(std::span<const Segment> segments,
                    int64_t rows = std::numeric_limits<int64_t>::max()) {
  for (const Segment& segment : segments)
    KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0 &&
                segment.q_begin <= rows - segment.q_count);
}

/// Numbers of a gate need one.
void check_activation(const ActivationFunction& function, bool gated) {
  KVCAL_CHECK(function.limit >= 0.0f);
  KVCAL_CHECK(function.limit > 0.0f || !function.limits_activated);
  KVCAL_CHECK(gated || (function.limit == 0.0f && function.gate_multiplier == 1.0f &&
                        function.up_softcap == 0.0f));
  const bool is_situ = function.kind == Activation::kSitu;
  KVCAL_CHECK(is_situ ? function.beta > 0.0f && function.up_softcap >= 0.0f
                      : function.up_softcap == 0.0f);
}

void check_row_list(std::span<const int32_t> rows) {
  for (const int32_t row : rows) KVCAL_CHECK(row >= 0);
}

}  // namespace

void Backend::check(const EmbedArgs& args) const {
  check_float_matrix(args.table);
  for (size_t i = 0; i < args.ids.size(); ++i)
    if (args.ids[i] < 0 || args.ids[i] >= args.table.shape[0])
      fail("token id ", args.ids[i], " at position ", i, " leaves '", args.table.name, "' of ",
           args.table.shape[0], " rows");
}

void Backend::check(const NormArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void Backend::check(const NormHeadsArgs& args) const {
  check_heads(args.x);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void Backend::check(const MatmulArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.out_row_stride() >= args.weight.out_features);
}

void Backend::check(const RopeArgs& args) const {
  check_heads(args.x);
  KVCAL_CHECK(args.rotary_dim >= 0 && args.rotary_dim % 2 == 0);
  KVCAL_CHECK(args.rotary_dim <= args.x.head_dim);
}

void Backend::check(const ObserveKvArgs& args) const {
  check_cached_heads(args.x);
  check_segments(args.segments, args.x.tokens);
}

void Backend::check(const ObserveRowsArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  check_segments(args.segments, args.rows);
}

void Backend::check(const StoreKvArgs& args) const {
  check_cached_heads(args.x);
  KVCAL_CHECK(!is_fp8(args.dtype) || args.scales != nullptr);
}

void Backend::check(const SimulateCacheArgs& args) const {
  check_heads(args.x);
  const CacheLayout& layout = layout_of(args.format);
  KVCAL_CHECK(takes_head(layout, args.x.head_dim, args.is_value));
  KVCAL_CHECK(!layout.needs_scales || args.scales != nullptr);
  KVCAL_CHECK(!args.scale_per_channel || args.format == CacheFormat::kInt8);
}

void Backend::check(const LoadKvArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.heads > 0 && args.head_dim > 0);
  KVCAL_CHECK(!is_fp8(args.dtype) || args.scales != nullptr);
}

void Backend::check(const CopyHeadsArgs& args) const {
  check_heads(args.x);
  check_heads(args.out);
  KVCAL_CHECK(args.x.tokens == args.out.tokens);
  KVCAL_CHECK(args.x.heads == args.out.heads || args.x.heads == 1);
  KVCAL_CHECK(args.width >= 0 && args.width <= args.x.head_dim);
  KVCAL_CHECK(args.width <= args.out.head_dim);
}

void Backend::check(const SelectKeysArgs& args) const {
  KVCAL_CHECK(args.heads > 0 && args.head_dim > 0 && args.topk > 0 && args.block > 0);
  check_segments(args.segments);
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(segment.kv_begin >= 0 && segment.q_count <= segment.kv_count &&
                KeySelection::words_of(segment.kv_count) <= args.row_words);
}

namespace {

void check_relative(const RelativeLogits& relative, float softcap) {
  if (!relative.states) return;
  KVCAL_CHECK(relative.table != nullptr && relative.rank > 0 && relative.extent > 0);
  KVCAL_CHECK(softcap == 0.0f);
}

}  // namespace

void Backend::check(const AttentionWeightsArgs& args) const {
  KVCAL_CHECK(args.kv_heads > 0 && args.heads > 0 && args.heads % args.kv_heads == 0);
  KVCAL_CHECK(args.head_dim > 0 && args.v_head_dim > 0 && args.softcap >= 0.0f);
  check_relative(args.relative, args.softcap);
  for (const KeySpan& seen : args.seen)
    KVCAL_CHECK(seen.begin >= 0 && seen.begin < seen.end &&
                seen.end - seen.begin + (args.sinks ? 1 : 0) <= args.weights_stride);
}

void Backend::check(const AttentionArgs& args) const {
  KVCAL_CHECK(args.kv_heads > 0 && args.head_dim > 0 && args.heads % args.kv_heads == 0);
  KVCAL_CHECK(args.heads > 0 && args.q_row_stride >= args.heads * args.head_dim);
  KVCAL_CHECK(args.sliding_window >= 0 && args.v_head_dim >= 0 && args.softcap >= 0.0f);
  KVCAL_CHECK(!is_fp8(args.kv_dtype) || (args.k_scales != nullptr && args.v_scales != nullptr));
  KVCAL_CHECK(args.weight_scale >= 0.0f);
  check_relative(args.relative, args.softcap);
  if (args.rope.x.data) {
    KVCAL_CHECK(turns_queries() && args.rope.x.data == args.q);
    check(args.rope);
  }
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0 && segment.kv_begin >= 0 &&
                segment.q_count <= segment.kv_count);
  if (!args.selection.words) return;
  KVCAL_CHECK(!args.current_segments);
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(KeySelection::words_of(segment.kv_count) <= args.selection.row_words);
}

void Backend::check(const ActivationArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  check_activation(args.activation, args.gated);
}

void Backend::check(const ScaleArgs& args) const {
  check_heads(args.x);
}

void Backend::check(const ClampArgs& args) const {
  check_heads(args.x);
  KVCAL_CHECK(args.limit >= 0.0f);
}

void Backend::check(const AddArgs& args) const {
  KVCAL_CHECK(args.count >= 0);
}

void Backend::check(const MixStreamsArgs& args) const {
  KVCAL_CHECK(args.streams > 0 && args.inputs > 0 && args.rows >= 0 && args.width > 0);
  KVCAL_CHECK(args.out != args.x && args.out != args.added);
}

void Backend::check(const ConnectStreamsArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.streams > 0 && args.iterations > 0 && args.epsilon >= 0.0f);
}

void Backend::check(const AttendStreamsArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0 && args.epsilon >= 0.0f);
  KVCAL_CHECK(args.streams > 0 && args.streams <= AttendStreamsArgs::kMaxStreams);
}

void Backend::check(const GateByKeysArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.streams > 0 && args.width > 0 && args.floor >= 0.0f);
  KVCAL_CHECK(args.out != args.key && args.out != args.stream && args.out != args.value);
}

void Backend::check(const MatchMagnitudeArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0 && args.floor > 0.0f);
}

void Backend::check(const KeepOutliersArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0 && args.row_stride >= args.width);
}

void Backend::check(const MultiplyGateArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.heads > 0 && args.width > 0);
  KVCAL_CHECK(args.x.row_stride >= args.heads * args.width);
  KVCAL_CHECK(args.gate_stride() >= args.gate_width());
  KVCAL_CHECK(args.gate.row_stride == 0 ||
              args.gate.row_stride >= (args.heads - 1) * args.gate_stride() + args.gate_width());
}

void Backend::check(const GatedNormArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.groups > 0 && args.width > 0);
  KVCAL_CHECK(args.x.row_stride >= args.groups * args.width);
  KVCAL_CHECK(args.gate.row_stride >= args.groups * args.width);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void Backend::check(const CausalConvArgs& args) const {
  KVCAL_CHECK(args.channels > 0 && args.kernel > 0 && args.weight != nullptr);
  KVCAL_CHECK(args.x.row_stride >= args.channels);
  KVCAL_CHECK(args.out_row_stride() >= args.channels);
  check_segments(args.segments);
}

void Backend::check(const SsmScanArgs& args) const {
  KVCAL_CHECK(args.heads > 0 && args.head_dim > 0 && args.state_dim > 0 && args.groups > 0);
  KVCAL_CHECK(args.heads % args.groups == 0 && args.a != nullptr);
  KVCAL_CHECK(args.x.row_stride >= args.heads * args.head_dim);
  KVCAL_CHECK(args.dt.row_stride == 0 || args.dt.row_stride >= args.heads);
  KVCAL_CHECK(args.b.row_stride >= args.groups * args.state_dim);
  KVCAL_CHECK(args.c.row_stride >= args.groups * args.state_dim);
  KVCAL_CHECK(args.out_row_stride() >= args.heads * args.head_dim);
  KVCAL_CHECK(args.dt_min <= args.dt_max);
  check_segments(args.segments);
}

void Backend::check(const DeltaScanArgs& args) const {
  KVCAL_CHECK(args.k_heads > 0 && args.v_heads > 0 && args.v_heads % args.k_heads == 0);
  KVCAL_CHECK(args.k_dim > 0 && args.v_dim > 0);
  KVCAL_CHECK(args.q.row_stride >= args.k_heads * args.k_dim);
  KVCAL_CHECK(args.k.row_stride >= args.k_heads * args.k_dim);
  KVCAL_CHECK(args.v.row_stride >= args.v_heads * args.v_dim);
  KVCAL_CHECK(args.g.row_stride >= args.v_heads * (args.decay_per_key ? args.k_dim : 1));
  KVCAL_CHECK(args.beta.row_stride >= args.v_heads);
  KVCAL_CHECK(args.out_row_stride() >= args.v_heads * args.v_dim);
  KVCAL_CHECK(args.decay_rate != nullptr || (args.g_bias == nullptr && args.decay_floor == 0.0f));
  KVCAL_CHECK(args.decay_floor <= 0.0f);
  KVCAL_CHECK(args.logistic_beta || args.beta_range == 1.0f);
  check_segments(args.segments);
}

void Backend::check(const RouteArgs& args) const {
  const RouterRule& rule = args.rule;
  KVCAL_CHECK(rule.per_token > 0 && rule.per_token <= rule.experts);
  KVCAL_CHECK(rule.groups > 0 && rule.experts % rule.groups == 0);
  KVCAL_CHECK(args.row_stride >= rule.experts + (rule.shared_is_gated ? 1 : rule.scored_shared));
  KVCAL_CHECK(rule.scored_shared == 0 || (rule.score == RouterScore::kSigmoid &&
                                          !rule.shared_is_gated && args.shared_weights));
  KVCAL_CHECK(args.rows >= 0 && args.rows * rule.per_token <= INT32_MAX);
}

void Backend::check(const GatherRowsArgs& args) const {
  KVCAL_CHECK(args.count >= 0 && args.width > 0);
  if (is_host()) check_row_list({args.rows, static_cast<size_t>(args.count)});
}

void Backend::check(const CombineRowsArgs& args) const {
  KVCAL_CHECK(args.first >= 0 && args.count >= 0 && args.rows >= 0);
  KVCAL_CHECK(args.per_row > 0 && args.width > 0);
  KVCAL_CHECK(args.places != nullptr || args.per_row == 1);
}

void Backend::check(const ObserveAmaxArgs& args) const {
  KVCAL_CHECK(args.count >= 0 && args.amax != nullptr && args.nonfinite != nullptr);
}

void Backend::check(const QuantizeRowsArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  KVCAL_CHECK((args.scales != nullptr) != (args.row_scales != nullptr));
}

void Backend::check(const Fp8MatmulArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.x_scales != nullptr);
  KVCAL_CHECK(args.out_row_stride() >= args.weight.out_features);
}

void Backend::check(const ResidualNormArgs& args) const {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0 && args.epsilon >= 0.0f);
}

void Backend::check(const EnterCacheArgs& args) const {
  for (const CacheSide* side : {&args.k, &args.v}) {
    if (side->ranges) check(ObserveKvArgs{side->x, args.segments, side->ranges, side->histogram});
    if (side->out)
      check(StoreKvArgs{side->x, side->dtype, side->scales, side->out, side->saturated});
  }
  if (args.rope.x.data) check(args.rope);
}

void Backend::check(const MatmulGroupsArgs& args) const {
  for (const RowGroup& group : args.groups) {
    const PackedMatrix &weight = group.weight, &first = args.groups.front().weight;
    KVCAL_CHECK(group.rows >= 0 && weight.out_features == first.out_features);
    KVCAL_CHECK(weight.in_features == first.in_features);
  }
}

void Backend::check(const MatmulActivateArgs& args) const {
  check(MatmulGroupsArgs{.x = args.x, .type = args.type, .groups = args.groups});
  check_activation(args.activation, args.gated);
  KVCAL_CHECK(args.groups.empty() ||
              args.groups.front().weight.out_features == (args.gated ? 2 : 1) * args.width);
  for (const RowGroup& group : args.groups)
    KVCAL_CHECK((group.bias != nullptr) == (args.groups.front().bias != nullptr));
}

}  // namespace kvcal
