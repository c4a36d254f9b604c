#include "kernels/host_backend.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include <sys/mman.h>

#include "backend/expert_choice.h"
#include "core/error.h"

namespace kvcal {

namespace {

/// Size of a huge page. Large blocks use huge pages, because a matrix product walks through more
/// small pages than the TLB holds.
constexpr size_t kHuge = size_t{2} << 20;
constexpr bool is_large(size_t bytes) {
  return bytes >= 2 * kHuge;
}
constexpr std::align_val_t alignment_of(size_t bytes) {
  return std::align_val_t{is_large(bytes) ? kHuge : 64};
}
/// Limit of a process's address space; larger requests fail without the allocator.
constexpr size_t kAddressSpace = size_t{1} << 47;

/// Advises only whole huge pages, so that no more memory is taken than requested.
void advise_huge_pages(void* data, size_t bytes) {
  madvise(data, bytes / kHuge * kHuge, MADV_HUGEPAGE);
}

void release(std::multimap<size_t, std::byte*>& blocks) {
  for (const auto& [bytes, data] : blocks) ::operator delete(data, alignment_of(bytes));
  blocks.clear();
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
    do_observe_amax(
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

void select_largest(std::span<const float> scores, int64_t topk, std::span<uint32_t> row,
                    std::vector<uint32_t>& ordered) {
  std::ranges::fill(row, 0u);
  const auto select = [&](size_t key) { row[key / 32] |= uint32_t{1} << (key % 32); };
  if (std::ssize(scores) <= topk) {
    for (size_t key = 0; key < scores.size(); ++key) select(key);
    return;
  }
  ordered.resize(scores.size());
  std::ranges::transform(scores, ordered.begin(), order_of_score);
  const auto last = ordered.begin() + topk - 1;
  std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
  const uint32_t least = *last;
  // Keys with the least selected score, as many as the larger ones leave room for.
  int64_t equal =
      topk - std::count_if(ordered.begin(), last, [&](uint32_t order) { return order > least; });
  for (size_t key = 0; key < scores.size(); ++key) {
    const uint32_t order = order_of_score(scores[key]);
    if (order > least || (order == least && equal-- > 0)) select(key);
  }
}

void select_blocks(std::span<const float> scores, int64_t keys, const SelectKeysArgs& args,
                   std::span<uint32_t> row, std::vector<uint32_t>& ordered) {
  if (args.block == 1) return select_largest(scores, args.topk, row, ordered);
  const int64_t blocks = std::ssize(scores);
  std::vector<uint32_t> chosen(static_cast<size_t>(KeySelection::words_of(blocks)));
  select_largest(scores, args.topk, chosen, ordered);
  std::ranges::fill(row, 0u);
  for (int64_t key = 0; key < keys; ++key) {
    const int64_t block = key / args.block;
    if (block >= blocks || KeySelection::holds(chosen.data(), block))
      row[static_cast<size_t>(key / 32)] |= uint32_t{1} << (key % 32);
  }
}

AttentionArgs with_current_segments(const AttentionArgs& args) {
  AttentionArgs result = args;
  if (args.current_segments) result.segments = {args.current_segments, args.segments.size()};
  return result;
}

void choose_experts(const RouteArgs& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    ExpertChoice(args, row, args.scratch + row * args.rule.scratch_width(), 1).choose();
}

void sort_by_expert(const RouteArgs& args) {
  const int64_t experts = args.rule.experts, each = args.rule.per_token;
  std::fill_n(args.counts, experts + 1, 0);
  for (int64_t row = 0; row < args.rows; ++row) {
    const int32_t* chosen = args.chosen + row * each;
    if (*chosen == RouteArgs::kUnusable) {
      args.counts[experts] = std::max(args.counts[experts], args.unusable(row));
      continue;
    }
    for (int64_t i = 0; i < each; ++i) ++args.counts[chosen[i]];
  }
  std::vector<int64_t> next(static_cast<size_t>(experts), 0);
  for (size_t i = 1; i < next.size(); ++i) next[i] = next[i - 1] + args.counts[i - 1];
  for (int64_t at = 0; at < args.rows * each; ++at) {
    if (args.chosen[at / each * each] == RouteArgs::kUnusable) continue;
    const int64_t place = next[static_cast<size_t>(args.chosen[at])]++;
    args.tokens[place] = static_cast<int32_t>(at / each);
    args.weights[place] = args.chosen_weights[at];
    args.places[at] = static_cast<int32_t>(place);
  }
  for (int64_t row = 0; row < args.rows; ++row)
    std::sort(args.places + row * each, args.places + (row + 1) * each);
}

}  // namespace kvcal
