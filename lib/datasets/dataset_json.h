#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "datasets/record_source.h"
#include "datasets/text_file.h"

namespace kvcal {

/// The place of one record in its file's text.
struct RecordSpan {
  uint64_t begin = 0, size = 0;  ///< bytes, after a byte order mark
  int64_t line = 1;              ///< where it begins, from 1
};

/// A file of JSON records, parsed one at a time.
class JsonRecords : public RecordSource {
 public:
  enum class Shape {
    kLines,    ///< an object a line
    kObjects,  ///< objects of one JSON value
    kIds,      ///< arrays of token ids of one JSON value
  };
  JsonRecords(TextFile file, Shape shape, std::vector<RecordSpan> spans);

  int64_t size() const override { return static_cast<int64_t>(spans_.size()); }
  Json read(int64_t index) const override;
  std::string place(int64_t index) const override;
  bool holds_ids() const override { return shape_ == Shape::kIds; }
  std::string sha256() const override;

 private:
  TextFile file_;
  Shape shape_;
  std::vector<RecordSpan> spans_;
};

/// Finds the records without parsing them: memory is 24 bytes a record. Throws Error with file and
/// line for a record longer than kMaxRecordBytes, a file that ends inside one, or none at all.

}  // namespace kvcal
