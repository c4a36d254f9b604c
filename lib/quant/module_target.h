#pragma once

#include <string_view>

namespace kvcal {

/// Whether pattern matches name (a module name, "model.layers.0.self_attn") or class_name
/// ("LlamaAttention"): it equals one of them, or is "re:..." and its regular expression matches the
/// start of name (Python re.match). Throws Error where the pattern is no regular expression or
/// takes too many steps. Source: compressed-tensors `match_name` and `_match_class`, which also
/// knows the base classes of a class.
bool matches_target(std::string_view pattern, std::string_view name,
                    std::string_view class_name = "");

/// Throws Error where pattern (see matches_target) is empty, is no regular expression, or means
/// something else in Python's `re`.
void check_target(std::string_view pattern);

}  // namespace kvcal
