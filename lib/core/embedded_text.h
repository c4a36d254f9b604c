#pragma once

#include <string_view>

namespace kvcal {

/// A text file that was compiled into the program (embed_table of cmake/layers.cmake).
struct EmbeddedText {
  std::string_view name;  ///< of the file, without its folder
  std::string_view text;

  /// The name without its extension.
  std::string_view stem() const { return name.substr(0, name.rfind('.')); }
};

}  // namespace kvcal
