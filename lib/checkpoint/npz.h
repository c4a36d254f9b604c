#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

namespace kvcal {

/// One array as an .npz file's directory lists it; nothing of the array itself is checked yet.
struct NpzEntry {
  std::string name;  ///< of the array, as numpy.load gives it: without ".npy"
  uint64_t header_offset = 0;
  uint64_t stored_size = 0, size = 0;  ///< bytes in the file, and unpacked
  uint32_t crc = 0;
  uint16_t flags = 0, method = 0;
};

/// One *.npz file, a zip archive of .npy arrays as numpy.savez writes it, mapped. Only the
/// archive's directory is read at first, 64 MB of it at most; zip64 is read, since archives over 2
/// GB have it. Stricter than zip in that nothing may lie between directory and end record. Throws
/// Error naming file, what was found and expected. Source: PKWARE APPNOTE 6.3.10, sections 4.3.7 to
/// 4.3.16 and 4.5.3; numpy `savez`; CPython `zipfile`.
class NpzFile {
 public:
  explicit NpzFile(const fs::path& path);

  /// The arrays, in the order of the directory; what else the archive holds is left out. They stay
  /// where they are when the file is moved.
  const std::vector<NpzEntry>& entries() const& { return entries_; }
  const std::vector<NpzEntry>& entries() && = delete;
  /// The array of one of entries(), borrowed from this file; see parse_npy. Throws Error naming the
  /// array, too, where it is compressed, encrypted, leaves the file, is not what the directory says
  /// or has another CRC-32.
  TensorView array(const NpzEntry& entry) const&;
  TensorView array(const NpzEntry& entry) && = delete;

 private:
  MappedFile file_;
  std::vector<NpzEntry> entries_;
  uint64_t arrays_end_ = 0;  ///< where the directory begins
};

}  // namespace kvcal
