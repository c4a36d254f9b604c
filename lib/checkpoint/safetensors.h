#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/tensor.h"

namespace kvcal {

/// One *.safetensors file, mapped. Checked as the format's own reader does: header length against the file
/// and 100 MB, UTF-8 JSON object, known dtypes, offsets contiguous and in order, size = shape × dtype, the last offset
/// = the end of the file. Throws Error naming file, tensor, what was found and expected.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  /// In the order of their bytes. Views borrow from this file.
  const std::vector<TensorView>& tensors() const& { return tensors_; }
  const std::vector<TensorView>& tensors() && = delete;
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }
  /// Offset of the tensors' bytes in the file: 8 + header length.
  uint64_t data_offset() const { return data_offset_; }

 private:
  MappedFile file_;
  std::vector<std::string> names_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
  uint64_t data_offset_ = 0;
};

/// Where the bytes of a tensor to write come from: memory, or a range of a file that is copied, not read.
struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;       ///< used when file is empty; borrowed until written
  fs::path file;
  uint64_t file_offset = 0;
};

/// Writes a file: header with tensors in the order of the format's own writer (by dtype alignment,
/// descending, then name), `__metadata__` first, padded with spaces to 8 bytes; same input, same bytes.
/// Streams: never holds more than one copy buffer. Flushes.
void write_safetensors(const fs::path& path, std::vector<TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace kvcal
