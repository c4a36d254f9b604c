#pragma once

#include <string_view>

namespace kvcal {

/// A text file that was compiled into the program (embed_table of cmake/layers.cmake).
struct EmbeddedText {
  std::string_view name;  ///< of the file, without its folder
  std::string_view text;
};

}  // namespace kvcal
