#include "datasets/tables/arrow_values.h"

#if KVCAL_HAS_ARROW

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>

#include "core/error.h"
#include "core/utf8.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

constexpr std::string_view kJsonExtension = "arrow.json";

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

/// Numbers from 0 on are unsigned, as parse_json has them.
Json integer(int64_t value) {
  return value < 0 ? Json(value) : Json(static_cast<uint64_t>(value));
}

std::string_view checked_text(std::string_view text, RowSize& size) {
  size.text_bytes += text.size();
  if (size.text_bytes > kMaxRecordBytes)
    fail("the record has more than ", kMaxRecordBytes, " bytes, the limit");
  if (const auto at = utf8::find_invalid(text)) fail("byte ", *at + 1, " of the text is not UTF-8");
  return text;
}

Json elements(const arrow::Array& values, int64_t begin, int64_t count, RowSize& size) {
  Json list = Json::array();
  for (int64_t i = 0; i < count; ++i) list.push_back(arrow_value(values, begin + i, size));
  return list;
}

template <class List>
Json list_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto& list = as<List>(array);
  return elements(*list.values(), list.value_offset(index), list.value_length(index), size);
}

Json struct_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto& fields = as<arrow::StructArray>(array);
  Json object = Json::object();
  for (int i = 0; i < fields.num_fields(); ++i) {
    const std::string& name = fields.type()->field(i)->name();
    if (object.contains(name)) fail("key '", name, "' appears twice in one struct");
    in_context(name, [&] { object[name] = arrow_value(*fields.field(i), index, size); });
  }
  const bool keeps_content = find_field(object, "tool_calls") != nullptr;
  Json kept = Json::object();
  for (auto& [key, value] : object.items())
    if (!value.is_null() || (keeps_content && key == "content")) kept[key] = std::move(value);
  return kept;
}

Json extension_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto& extension = as<arrow::ExtensionArray>(array);
  const Json value = arrow_value(*extension.storage(), index, size);
  const auto& type = static_cast<const arrow::ExtensionType&>(*array.type());
  if (type.extension_name() != kJsonExtension) return value;
  const std::string& text = value.get_ref<const std::string&>();
  return parse_json(text, {.max_bytes = kMaxRecordBytes});
}

/// A value of a kind that JSON lacks, as text.
Json shown_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) fail(scalar.status().ToString());
  return Json(std::string(checked_text((*scalar)->ToString(), size)));
}

Json text_value(const arrow::Array& array, int64_t index, RowSize& size) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return Json(std::string(checked_text(as<arrow::StringArray>(array).GetView(index), size)));
    case arrow::Type::LARGE_STRING:
      return Json(
          std::string(checked_text(as<arrow::LargeStringArray>(array).GetView(index), size)));
    default:
      return Json(
          std::string(checked_text(as<arrow::StringViewArray>(array).GetView(index), size)));
  }
}

Json number_value(const arrow::Array& array, int64_t index) {
  switch (array.type_id()) {
    case arrow::Type::INT8:
      return integer(as<arrow::Int8Array>(array).Value(index));
    case arrow::Type::UINT8:
      return integer(as<arrow::UInt8Array>(array).Value(index));
    case arrow::Type::INT16:
      return integer(as<arrow::Int16Array>(array).Value(index));
    case arrow::Type::UINT16:
      return integer(as<arrow::UInt16Array>(array).Value(index));
    case arrow::Type::INT32:
      return integer(as<arrow::Int32Array>(array).Value(index));
    case arrow::Type::UINT32:
      return integer(as<arrow::UInt32Array>(array).Value(index));
    case arrow::Type::INT64:
      return integer(as<arrow::Int64Array>(array).Value(index));
    case arrow::Type::UINT64:
      return Json(as<arrow::UInt64Array>(array).Value(index));
    case arrow::Type::FLOAT:
      return Json(double{as<arrow::FloatArray>(array).Value(index)});
    default:
      return Json(as<arrow::DoubleArray>(array).Value(index));
  }
}

Json nested_value(const arrow::Array& array, int64_t index, RowSize& size) {
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return list_value<arrow::ListArray>(array, index, size);
    case arrow::Type::LARGE_LIST:
      return list_value<arrow::LargeListArray>(array, index, size);
    case arrow::Type::LIST_VIEW:
      return list_value<arrow::ListViewArray>(array, index, size);
    case arrow::Type::LARGE_LIST_VIEW:
      return list_value<arrow::LargeListViewArray>(array, index, size);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_value<arrow::FixedSizeListArray>(array, index, size);
    case arrow::Type::STRUCT:
      return struct_value(array, index, size);
    case arrow::Type::DICTIONARY: {
      const auto& encoded = as<arrow::DictionaryArray>(array);
      return arrow_value(*encoded.dictionary(), encoded.GetValueIndex(index), size);
    }
    default:
      return extension_value(array, index, size);
  }
}

}  // namespace

Json arrow_value(const arrow::Array& array, int64_t index, RowSize& size) {
  if (++size.values > JsonLimits{}.max_values)
    fail("the record has more than ", JsonLimits{}.max_values, " values, the limit");
  if (array.IsNull(index)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return Json(as<arrow::BooleanArray>(array).Value(index));
    case arrow::Type::INT8:
    case arrow::Type::UINT8:
    case arrow::Type::INT16:
    case arrow::Type::UINT16:
    case arrow::Type::INT32:
    case arrow::Type::UINT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
      return number_value(array, index);
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
      return text_value(array, index, size);
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::LIST_VIEW:
    case arrow::Type::LARGE_LIST_VIEW:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
    case arrow::Type::DICTIONARY:
    case arrow::Type::EXTENSION:
      return nested_value(array, index, size);
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256:
      return shown_value(array, index, size);
    default:
      fail("is of type ", array.type()->ToString(),
           ", expected text, numbers, lists, structs or times");
  }
}

}  // namespace kvcal

#endif
