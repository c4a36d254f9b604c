#include "kernels/host_backend.h"

#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/checked.h"
#include "core/error.h"

namespace kvcal {

namespace {

/// From here on memory is asked for in huge pages: a matrix product walks through more small ones
/// than the processor keeps in mind.
constexpr size_t kHuge = size_t{2} << 20;
constexpr bool is_large(size_t bytes) {
  return bytes >= 2 * kHuge;
}
constexpr std::align_val_t alignment_of(size_t bytes) {
  return std::align_val_t{is_large(bytes) ? kHuge : 64};
}
/// No request larger than what a process can address reaches the allocator.
constexpr size_t kAddressSpace = size_t{1} << 47;

/// Whole huge pages alone, so that no more memory is taken than was asked for.
void advise_huge_pages(void* data, size_t bytes) {
#if defined(__linux__)
  madvise(data, bytes / kHuge * kHuge, MADV_HUGEPAGE);
#else
  static_cast<void>(data), static_cast<void>(bytes);
#endif
}

void release(std::multimap<size_t, std::byte*>& blocks) {
  for (const auto& [bytes, data] : blocks) ::operator delete(data, alignment_of(bytes));
  blocks.clear();
}

void check_float(const TensorView& view) {
  if (!is_float(view.dtype))
    fail("tensor '", view.name, "' is ", view.dtype, ", expected F32, F16 or BF16");
}

/// A matrix whose bytes match its shape. Throws Error otherwise.
void check_matrix(const TensorView& view) {
  if (view.shape.rank() != 2)
    fail("tensor '", view.name, "' has shape ", view.shape, ", expected two dimensions");
  const uint64_t wanted = byte_count(view.shape, view.dtype);
  if (view.bytes.size() != wanted)
    fail("tensor '", view.name, "': shape ", view.shape, " of ", view.dtype, " needs ", wanted,
         " bytes, it has ", view.bytes.size());
}

void check_rows(std::span<const Segment> segments) {
  for (const Segment& segment : segments) KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0);
}

}  // namespace

HostBackend::~HostBackend() {
  release(spare_);
}

Buffer HostBackend::allocate(size_t bytes) {
  if (is_large(bytes)) {
    const std::lock_guard lock(spare_mutex_);
    if (const auto spare = spare_.find(bytes); spare != spare_.end())
      return {this, spare_.extract(spare).mapped(), bytes};
    release(spare_);
  }
  void* data =
      bytes > kAddressSpace ? nullptr : ::operator new(bytes, alignment_of(bytes), std::nothrow);
  if (!data) fail("no memory for a buffer of ", bytes, " bytes");
  if (is_large(bytes)) advise_huge_pages(data, bytes);
  return {this, static_cast<std::byte*>(data), bytes};
}

void HostBackend::free(std::byte* data, size_t bytes) noexcept {
  if (is_large(bytes)) {
    try {
      const std::lock_guard lock(spare_mutex_);
      spare_.emplace(bytes, data);
      return;
    } catch (const std::bad_alloc&) {  // then it goes at once
    }
  }
  ::operator delete(data, alignment_of(bytes));
}

void HostBackend::copy_in(std::span<const std::byte> host, std::byte* data) {
  if (!host.empty()) std::memcpy(data, host.data(), host.size());
}

void HostBackend::copy_out(const std::byte* data, std::span<std::byte> host) {
  if (!host.empty()) std::memcpy(host.data(), data, host.size());
}

void HostBackend::fill_zero(std::byte* data, size_t bytes) {
  if (bytes > 0) std::memset(data, 0, bytes);
}

void HostBackend::observe_written(const AmaxSlot& seen, ComputeType type, const void* out,
                                  int64_t count) {
  if (seen)
    observe_amax(
        {.x = out, .type = type, .count = count, .amax = seen.amax, .nonfinite = seen.nonfinite});
}

void HostBackend::observe_attended(const AttentionArgs& args) {
  const int64_t width = args.heads * args.value_dim();
  const int64_t row_bytes = width * static_cast<int64_t>(bytes_of(args.out_type));
  for (const Segment& segment : args.segments)
    observe_written(args.seen, args.out_type,
                    static_cast<const std::byte*>(args.out) + segment.q_begin * row_bytes,
                    segment.q_count * width);
}

AttentionArgs with_current_segments(const AttentionArgs& args) {
  AttentionArgs result = args;
  if (args.current_segments) result.segments = {args.current_segments, args.segments.size()};
  return result;
}

PackShape checked_pack_shape(std::span<const TensorView> parts) {
  for (const TensorView& part : parts) check_float(part);
  return concatenated_shape(parts);
}

PackShape concatenated_shape(std::span<const TensorView> parts) {
  KVCAL_CHECK(!parts.empty());
  for (const TensorView& part : parts) check_matrix(part);
  PackShape shape{.out_features = 0, .in_features = parts[0].shape[1]};
  for (const TensorView& part : parts) {
    if (part.shape[1] != shape.in_features)
      fail("tensor '", part.name, "' has shape ", part.shape, ", expected ", shape.in_features,
           " columns as in '", parts[0].name, "'");
    shape.out_features += part.shape[0];
  }
  return shape;
}

void check_embed(const EmbedArgs& args) {
  check_float(args.table);
  check_matrix(args.table);
  for (size_t i = 0; i < args.ids.size(); ++i)
    if (args.ids[i] < 0 || args.ids[i] >= args.table.shape[0])
      fail("token id ", args.ids[i], " at position ", i, " leaves '", args.table.name, "' of ",
           args.table.shape[0], " rows");
}

void check_heads(const HeadsView& x) {
  KVCAL_CHECK(x.tokens >= 0 && x.heads > 0 && x.head_dim > 0);
  KVCAL_CHECK(x.row_stride >= x.heads * x.head_dim);
}

void check_norm(const NormArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void check_norm_heads(const NormHeadsArgs& args) {
  check_heads(args.x);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void check_rope(const RopeArgs& args) {
  check_heads(args.x);
  KVCAL_CHECK(args.rotary_dim >= 0 && args.rotary_dim % 2 == 0);
  KVCAL_CHECK(args.rotary_dim <= args.x.head_dim);
}

void check_observe_kv(const ObserveKvArgs& args) {
  check_heads(args.x);
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0 &&
                segment.q_begin + segment.q_count <= args.x.tokens);
}

void check_observe_rows(const ObserveRowsArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0 &&
                segment.q_begin + segment.q_count <= args.rows);
}

void check_store_kv(const StoreKvArgs& args) {
  check_heads(args.x);
  KVCAL_CHECK(!is_fp8(args.dtype) || args.scales != nullptr);
}

void check_load_kv(const LoadKvArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.heads > 0 && args.head_dim > 0);
  KVCAL_CHECK(!is_fp8(args.dtype) || args.scales != nullptr);
}

void check_copy_heads(const CopyHeadsArgs& args) {
  check_heads(args.x);
  check_heads(args.out);
  KVCAL_CHECK(args.x.tokens == args.out.tokens);
  KVCAL_CHECK(args.x.heads == args.out.heads || args.x.heads == 1);
  KVCAL_CHECK(args.width >= 0 && args.width <= args.x.head_dim);
  KVCAL_CHECK(args.width <= args.out.head_dim);
}

void check_attention(const AttentionArgs& args) {
  KVCAL_CHECK(args.kv_heads > 0 && args.head_dim > 0 && args.heads % args.kv_heads == 0);
  KVCAL_CHECK(args.heads > 0 && args.q_row_stride >= args.heads * args.head_dim);
  KVCAL_CHECK(args.sliding_window >= 0 && args.v_head_dim >= 0 && args.softcap >= 0.0f);
  KVCAL_CHECK(!is_fp8(args.kv_dtype) || (args.k_scales != nullptr && args.v_scales != nullptr));
  for (const Segment& segment : args.segments)
    KVCAL_CHECK(segment.q_begin >= 0 && segment.q_count >= 0 && segment.kv_begin >= 0 &&
                segment.q_count <= segment.kv_count);
}

void check_activate(const ActivationArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.width > 0);
  KVCAL_CHECK(args.limit >= 0.0f && (args.gated || args.limit == 0.0f));
}

void check_add(const AddArgs& args) {
  KVCAL_CHECK(args.count >= 0);
}

void check_multiply_gate(const MultiplyGateArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.heads > 0 && args.width > 0);
  KVCAL_CHECK(args.x.row_stride >= args.heads * args.width);
  KVCAL_CHECK(args.gate_head_stride == 0 || args.gate_head_stride >= args.width);
  const int64_t head_stride = args.gate_head_stride > 0 ? args.gate_head_stride : args.width;
  KVCAL_CHECK(args.gate.row_stride >= (args.heads - 1) * head_stride + args.width);
}

void check_gated_norm(const GatedNormArgs& args) {
  KVCAL_CHECK(args.rows >= 0 && args.groups > 0 && args.width > 0);
  KVCAL_CHECK(args.x.row_stride >= args.groups * args.width);
  KVCAL_CHECK(args.gate.row_stride >= args.groups * args.width);
  KVCAL_CHECK(args.weight != nullptr && args.epsilon >= 0.0f);
}

void check_causal_conv(const CausalConvArgs& args) {
  KVCAL_CHECK(args.channels > 0 && args.kernel > 0 && args.weight != nullptr);
  KVCAL_CHECK(args.x.row_stride >= args.channels);
  KVCAL_CHECK(args.out_stride == 0 || args.out_stride >= args.channels);
  check_rows(args.segments);
}

void check_ssm_scan(const SsmScanArgs& args) {
  KVCAL_CHECK(args.heads > 0 && args.head_dim > 0 && args.state_dim > 0 && args.groups > 0);
  KVCAL_CHECK(args.heads % args.groups == 0 && args.a != nullptr);
  KVCAL_CHECK(args.x.row_stride >= args.heads * args.head_dim);
  KVCAL_CHECK(args.dt.row_stride >= args.heads);
  KVCAL_CHECK(args.b.row_stride >= args.groups * args.state_dim);
  KVCAL_CHECK(args.c.row_stride >= args.groups * args.state_dim);
  KVCAL_CHECK(args.out_stride == 0 || args.out_stride >= args.heads * args.head_dim);
  KVCAL_CHECK(args.dt_min <= args.dt_max);
  check_rows(args.segments);
}

void check_delta_scan(const DeltaScanArgs& args) {
  KVCAL_CHECK(args.k_heads > 0 && args.v_heads > 0 && args.v_heads % args.k_heads == 0);
  KVCAL_CHECK(args.k_dim > 0 && args.v_dim > 0);
  KVCAL_CHECK(args.q.row_stride >= args.k_heads * args.k_dim);
  KVCAL_CHECK(args.k.row_stride >= args.k_heads * args.k_dim);
  KVCAL_CHECK(args.v.row_stride >= args.v_heads * args.v_dim);
  KVCAL_CHECK(args.g.row_stride >= args.v_heads && args.beta.row_stride >= args.v_heads);
  KVCAL_CHECK(args.out_stride == 0 || args.out_stride >= args.v_heads * args.v_dim);
  KVCAL_CHECK(args.decay_rate != nullptr || args.g_bias == nullptr);
  check_rows(args.segments);
}

void check_gather_rows(const GatherRowsArgs& args) {
  KVCAL_CHECK(args.count >= 0 && args.width > 0);
  for (int64_t i = 0; i < args.count; ++i) KVCAL_CHECK(args.rows[i] >= 0);
}

void check_scatter_add(const ScatterAddArgs& args) {
  KVCAL_CHECK(args.count >= 0 && args.width > 0);
  for (int64_t i = 0; i < args.count; ++i) KVCAL_CHECK(args.rows[i] >= 0);
}

void check_observe_amax(const ObserveAmaxArgs& args) {
  KVCAL_CHECK(args.count >= 0 && args.amax != nullptr && args.nonfinite != nullptr);
}

}  // namespace kvcal
