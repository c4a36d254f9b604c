#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/tensor.h"

namespace kvcal {

/// One *.safetensors file, mapped. Checked as the format's own reader does: header length against
/// the file and 100 MB, UTF-8 JSON object, known dtypes, size = shape × dtype, tensors contiguous
/// from the first byte to the last. Stricter in that repeated keys, entries that are arrays, and
/// dimensions of 2^63 and more are refused. Unknown keys of an entry are ignored, as the format's
/// reader does. Tensors may lie at any address, aligned for their dtype or not: files with an
/// unpadded header exist. TensorView::as checks; readers of bytes need not. Throws Error naming
/// file, tensor, what was found and expected. Source: safetensors 0.8.0,
/// `SafeTensors::read_metadata` and `Metadata::validate`.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  /// In the order of their bytes. Views borrow from this file and stay valid when it is moved.
  const std::vector<TensorView>& tensors() const& { return tensors_; }
  const std::vector<TensorView>& tensors() && = delete;
  /// nullptr where the file has no such tensor.
  const TensorView* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const MappedFile& file() const { return file_; }
  /// Offset of the tensors' bytes in the file: 8 + header length.
  uint64_t data_offset() const { return data_offset_; }
  /// Offset in the file of a view that came from tensors() or find().
  uint64_t offset_of(const TensorView& tensor) const;
  /// From now on as if the file did not have these tensors; views of others must be asked for anew.
  void leave_out(const std::set<std::string, std::less<>>& names);
  /// Whether tensors() are all that the file holds.
  bool is_whole() const { return tensors_.size() == names_.size(); }

 private:
  std::string_view header_text();
  void read_header(const Json& header);

  MappedFile file_;
  std::vector<std::string> names_;  ///< the views' names point here
  std::vector<TensorView> tensors_;
  std::map<std::string_view, size_t> by_name_;  ///< into tensors_
  std::map<std::string, std::string> metadata_;
  uint64_t data_offset_ = 0;
};

/// The source of a tensor's bytes to write: memory, a range of a file that is copied, not
/// read, or a function that makes them.
struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;  ///< used when file is empty; borrowed until written
  fs::path file;
  uint64_t file_offset = 0;
  /// Fills bytes, which begin offset bytes into the tensor at a whole element. Used where set, and
  /// called from several threads at once.
  std::function<void(uint64_t offset, std::span<std::byte> bytes)> generate = {};
};

/// A source that copies the bytes of a tensor of file.
TensorSource source_of(const SafetensorsFile& file, const TensorView& tensor);
/// A source that borrows the bytes of tensor.
TensorSource source_of(const Tensor& tensor);

struct WriteOptions {
  ThreadPool* pool = nullptr;  ///< generates; nullptr: the caller's thread
  /// Told how many more bytes of generated tensors are in the file.
  std::function<void(uint64_t bytes)> written = {};
};

/// Writes a file: header with tensors in the order of the format's own writer (by dtype, last of
/// the enumeration first, then name), `__metadata__` first where there is any, padded with spaces
/// to 8 bytes; same input, same bytes, and the same as the format's own writer gives. Streams:
/// ranges that follow each other in one source file are one copy; never holds more than one copy
/// buffer, or two for what is generated. Flushes. Throws Error for a repeated name or a header over
/// 100 MB. Source: safetensors 0.8.0, `prepare` and `serialize_to_file`.
void write_safetensors(const fs::path& path, std::vector<TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const WriteOptions& options = {});

}  // namespace kvcal
