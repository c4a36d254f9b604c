#pragma once

#include <string>

#include "output_options.h"

namespace kvcal {

/// A conversion as a command asks for it.
struct ConversionCommand {
  std::string checkpoint, scales, strategy, dialect;
  OutputOptions output;
  std::string format_option = "--to";  ///< for messages
  bool json = false;
};

/// Reads, writes all formats, and tells what was done and what is lost.
void run_conversion(const ConversionCommand& command);

}  // namespace kvcal
