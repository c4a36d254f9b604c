#pragma once

#include <cstdint>

#include "core/json.h"
#include "datasets/tables/table.h"

namespace arrow {
class Array;
}

namespace kvcal {

/// One value of an array as JSON would have it: texts, numbers, lists, structs, dictionary-encoded
/// values as what they stand for, arrow.json parsed, points in time and decimals as text. A
/// struct's fields that are null are left out, since a table has every field in every row and a
/// template asks whether a message has one; `content` beside `tool_calls` stays, as chat records
/// have it. size is added to; above kMaxRecordBytes of text or the values that parse_json takes it
/// throws Error, as it does for types that JSON has not and for text that is not UTF-8. The array
/// must be valid (ValidateFull).
Json arrow_value(const arrow::Array& array, int64_t index, RowSize& size);

}  // namespace kvcal
