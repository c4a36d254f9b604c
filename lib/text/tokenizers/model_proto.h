#pragma once

#include <string_view>

namespace kvcal::tokenizers {

/// Throws Error for bytes that are no sentencepiece ModelProto that its library can be trusted
/// with: broken fields, no pieces, too many or too long ones, scores that are not finite, a
/// character map with loose ends.
void check_model_proto(std::string_view bytes);

}  // namespace kvcal::tokenizers
