#pragma once

#include <string>
#include <vector>

namespace kvcal {

/// A file or folder that a command writes beside its result.
struct OutputFile {
  std::string option;  ///< that names it
  std::string path;    ///< empty: not asked for
};

/// Before the work, so that nothing is lost at its end: throws Error naming option and path where
/// an output exists and may not be replaced, has no folder to lie in, is, holds or lies in what is
/// read, or is another output. inputs: files and folders; empty ones count for nothing.
void check_output_files(const std::vector<OutputFile>& outputs, bool overwrite,
                        const std::vector<std::string>& inputs);

}  // namespace kvcal
