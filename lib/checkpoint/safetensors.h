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

/// Source of a tensor's bytes to write: memory, a range of a file, which is copied without a read,
/// or a function.
struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;  ///< used when file is empty; borrowed until written
  fs::path file;
  uint64_t file_offset = 0;
  /// Fills bytes, which begin offset bytes into the tensor, at a whole element. Used where set;
  /// several threads call it at once.
  std::function<void(uint64_t offset, std::span<std::byte> bytes)> generate = {};
};

/// One mapped *.safetensors file, checked as the format's own reader does: header length against
/// the file and 100 MB, UTF-8 JSON object, known dtypes, size = shape × dtype, contiguous tensors
/// from the first byte to the last. Stricter in that it refuses repeated keys, entries that are
/// arrays, and dimensions from 2^63 on. Ignores unknown keys of an entry, as the format's reader
/// does. Tensors may be unaligned, since files with an unpadded header exist; TensorView::as checks
/// the alignment. Throws Error naming file, tensor, the value found and expected. Source:
/// safetensors 0.8.0, `SafeTensors::read_metadata` and `Metadata::validate`.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);

  /// Tensors in the order of their bytes. Views borrow from this file and stay valid when it is
  /// moved.
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
  /// Hides these tensors from now on; views of others must be fetched again.
  void leave_out(const std::set<std::string, std::less<>>& names);
  /// Adds tensors that copies of this file get, in place of its own of the same name: views have no
  /// bytes, and source_of returns these sources. Views of others must be fetched again.
  void add(std::vector<TensorSource> sources);
  /// Whether no tensor is hidden or added.
  bool is_whole() const { return added_.empty() && tensors_.size() == names_.size(); }

 private:
  std::string_view header_text();
  void read_header(const Json& header);
  void index_tensors();
  friend TensorSource source_of(const SafetensorsFile& file, const TensorView& tensor);

  MappedFile file_;
  std::vector<std::string> names_;  ///< the views' names point into it
  std::vector<TensorView> tensors_;
  std::map<std::string, TensorSource, std::less<>> added_;  ///< the views' names point into it
  std::map<std::string_view, size_t> by_name_;              ///< into tensors_
  std::map<std::string, std::string> metadata_;
  uint64_t data_offset_ = 0;
};

/// A source that copies the bytes of a tensor of file, or the one that was added.
TensorSource source_of(const SafetensorsFile& file, const TensorView& tensor);
/// A source that borrows the bytes of tensor.
TensorSource source_of(const Tensor& tensor);

struct WriteOptions {
  ThreadPool* pool = nullptr;  ///< generates tensors; nullptr: the caller's thread
  /// Called with the number of bytes of generated tensors that were written since the last call.
  std::function<void(uint64_t bytes)> written = {};
};

/// Writes a file: a header with tensors in the order of the format's own writer (by dtype, last of
/// the enumeration first, then name), `__metadata__` first where there is any, padded with spaces
/// to 8 bytes. The bytes are those of the format's own writer. Copies contiguous ranges of a source
/// file in one step; holds at most one copy buffer, or two for generated tensors. Flushes. Throws
/// Error for a repeated name or a header over 100 MB. Source: safetensors 0.8.0, `prepare` and
/// `serialize_to_file`.
void write_safetensors(const fs::path& path, std::vector<TensorSource> tensors,
                       const std::map<std::string, std::string>& metadata,
                       const WriteOptions& options = {});

}  // namespace kvcal
