#include "core/pcre2_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "core/interrupt.h"

namespace kvcal {
namespace {

struct Free {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

/// Scratch memory for matches, one a thread; it keeps nothing between matches but its limits.
struct MatchScratch {
  MatchScratch() {
    if (!match || !context || !stack) fail("PCRE2: out of memory");
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  void limit(const RegexOptions& options) {
    if (options == limits) return;
    limits = options;
    pcre2_set_match_limit(context.get(), options.max_steps);
    pcre2_set_depth_limit(context.get(), options.max_depth);
    pcre2_set_heap_limit(context.get(), options.max_heap_kib);
  }

  Owned<pcre2_match_data> match{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(32 * 1024, 16 * 1024 * 1024, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  RegexOptions limits;  ///< those of context
};

PCRE2_SPTR units_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

/// Counts the work of one match. PCRE2 calls it before each part of the expression.
class WorkCounter {
 public:
  WorkCounter(RegexWork& work, size_t from, pcre2_match_context* context)
      : work_(work), context_(context), at_(from) {
    pcre2_set_callout(context, &WorkCounter::count, this);
  }
  ~WorkCounter() { pcre2_set_callout(context_, nullptr, nullptr); }
  WorkCounter(const WorkCounter&) = delete;
  WorkCounter& operator=(const WorkCounter&) = delete;
  bool is_stopped() const { return is_stopped_; }

 private:
  static constexpr uint64_t kWorkToAsk = 1 << 20;

  /// No exception may pass through PCRE2, so an error number ends the match.
  static int count(pcre2_callout_block* part, void* counter) {
    auto& self = *static_cast<WorkCounter*>(counter);
    const size_t at = part->current_position, passed = at > self.at_ ? at - self.at_ : 0;
    self.at_ = at;
    const uint64_t before = self.work_.done / kWorkToAsk;
    self.work_.done += 1 + passed;
    self.is_stopped_ = self.work_.done > self.work_.most ||
                       (self.work_.done / kWorkToAsk != before && is_interrupt_requested());
    return self.is_stopped_ ? PCRE2_ERROR_CALLOUT : 0;
  }

  RegexWork& work_;
  pcre2_match_context* context_;
  size_t at_;  ///< where the last part was tried
  bool is_stopped_ = false;
};

void* compiled(std::string_view expression, const RegexOptions& options) {
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), options.max_nesting);
  const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_USE_OFFSET_LIMIT | PCRE2_NEVER_BACKSLASH_C |
                         (options.is_anchored ? PCRE2_ANCHORED : 0u) |
                         (options.is_multiline ? PCRE2_MULTILINE : 0u) |
                         (options.counts_work ? PCRE2_AUTO_CALLOUT : 0u);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code =
      pcre2_compile(units_of(expression), expression.size(), flags, &error, &offset, context.get());
  if (!code) throw RegexSyntaxError(offset, message_of(error));
  if (options.is_jitted) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // or it is slower, no more
  return code;
}

}  // namespace

Pcre2Regex::Pcre2Regex(std::string_view expression, const RegexOptions& options)
    : options_(options), code_(compiled(expression, options), [](void* code) {
        pcre2_code_free(static_cast<pcre2_code*>(code));
      }) {}

std::optional<std::pair<size_t, size_t>> Pcre2Regex::find(std::string_view text, size_t from,
                                                          size_t last, RegexWork* work) const {
  thread_local MatchScratch scratch;
  pcre2_match_context* const context = scratch.context.get();
  scratch.limit(options_);
  pcre2_set_offset_limit(context, last == std::string_view::npos ? PCRE2_UNSET : last);
  const auto match = [&](uint32_t more) {
    const uint32_t flags = more | (options_.trusts_text ? PCRE2_NO_UTF_CHECK : 0u);
    return pcre2_match(static_cast<const pcre2_code*>(code_.get()), units_of(text), text.size(),
                       from, flags, scratch.match.get(), context);
  };
  std::optional<WorkCounter> counter;
  if (work) counter.emplace(*work, from, context);
  int count = match(0);
  // The interpreter has its frames on the heap.
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) count = match(PCRE2_NO_JIT);
  if (count == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (counter && counter->is_stopped()) {
    throw_if_interrupted();
    fail("takes more than ", work->most, " steps");
  }
  if (count < 0) fail(message_of(count));
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(scratch.match.get());
  return std::pair<size_t, size_t>{std::min(ends[0], ends[1]), ends[1]};
}

}  // namespace kvcal
