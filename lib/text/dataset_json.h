#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace kvcal {

/// Where one record lies in its file's text.
struct RecordSpan {
  uint64_t begin = 0, size = 0;  ///< bytes, after a byte order mark
  int64_t line = 1;              ///< where it begins, from 1
};

/// A mapped file of JSON records, parsed one at a time.
class JsonRecords {
 public:
  enum class Shape {
    kLines,    ///< an object a line
    kObjects,  ///< objects of one JSON value
    kIds,      ///< arrays of token ids of one JSON value
  };
  JsonRecords(MappedFile file, Shape shape, std::vector<RecordSpan> spans);

  int64_t size() const { return static_cast<int64_t>(spans_.size()); }
  /// Throws Error with the place.
  Json read(int64_t index) const;
  std::string place(int64_t index) const;
  Shape shape() const { return shape_; }
  const fs::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  Shape shape_;
  std::vector<RecordSpan> spans_;
};

/// Finds the records without parsing them: memory is 24 bytes a record. Throws Error with file and
/// line for a record longer than kMaxRecordBytes, a file that ends inside one, or none at all.
JsonRecords open_json_lines(const fs::path& path);
JsonRecords open_json_value(const fs::path& path);

/// Either of the two, by path's extension, else by its content. what: for the message where it is
/// neither ("a descriptor's local copy").
JsonRecords open_json_records(const fs::path& path, std::string_view what);

}  // namespace kvcal
