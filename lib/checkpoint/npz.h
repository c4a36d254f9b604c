#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace kvcal {

/// One array in the directory of an .npz file; the array itself is still unchecked.
struct NpzEntry {
  std::string name;  ///< as in numpy.load: without ".npy"
  uint64_t header_offset = 0;
  uint64_t stored_size = 0, size = 0;  ///< bytes in the file, and uncompressed
  uint32_t crc = 0;
  uint16_t flags = 0, method = 0;
};

/// One mapped *.npz file, a zip archive of .npy arrays as numpy.savez writes it. The constructor
/// reads only the archive's directory, at most 64 MB; zip64 is supported, since archives over 2 GB
/// use it. Stricter than zip: nothing may lie between directory and end record. Throws Error naming
/// file, the value found and expected. Source: PKWARE APPNOTE 6.3.10, sections 4.3.7 to 4.3.16 and
/// 4.5.3; numpy `savez`; CPython `zipfile`.
class NpzFile {
 public:
  explicit NpzFile(const fs::path& path);

  /// The arrays in the order of the directory; other members of the archive are left out. Entries
  /// stay in place when the file is moved.
  const std::vector<NpzEntry>& entries() const& { return entries_; }
  const std::vector<NpzEntry>& entries() && = delete;
  /// Array of one of entries(), borrowed from this file; see parse_npy. Throws Error naming the
  /// array, also where it is compressed, encrypted, outside the file, different from its directory
  /// entry, or has another CRC-32.
  TensorView array(const NpzEntry& entry) const&;
  TensorView array(const NpzEntry& entry) && = delete;

 private:
  MappedFile file_;
  std::vector<NpzEntry> entries_;
  uint64_t arrays_end_ = 0;  ///< offset of the directory
};

/// Parses the bytes of one .npy file, format versions 1.0 to 3.0. The view borrows name and bytes;
/// its elements may be unaligned. Supports the dtypes '<f2', '<f4' and '<f8' (F16, F32, F64) in C
/// order, and in Fortran order where both are equal. Throws Error with the value found and
/// expected: another magic, version or dtype, a header that is truncated, over 10000 bytes or not
/// the dictionary that numpy writes, or data that are not shape × dtype bytes. Source: numpy
/// `lib.format`; 10000 is its `_MAX_HEADER_SIZE`.
TensorView parse_npy(std::string_view name, std::span<const std::byte> bytes);

}  // namespace kvcal
