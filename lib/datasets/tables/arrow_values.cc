#include "datasets/tables/table.h"

#if KVCAL_HAS_ARROW

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/type.h>

#include <type_traits>

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

std::string_view checked_text(std::string_view text, RowSize& size) {
  size.text_bytes += text.size();
  check_record_size("the record", size.bytes(), size.max_bytes);
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
  return parse_json(text, {.max_bytes = text.size()});
}

/// A value of a kind that JSON lacks, as text.
Json shown_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) fail(scalar.status().ToString());
  return Json(std::string(checked_text((*scalar)->ToString(), size)));
}

template <class Array>
Json text_value(const arrow::Array& array, int64_t index, RowSize& size) {
  return Json(std::string(checked_text(as<Array>(array).GetView(index), size)));
}

/// A number or a truth value. Numbers from 0 on are unsigned, as parse_json has them.
template <class Array>
Json plain_value(const arrow::Array& array, int64_t index, RowSize& /*size*/) {
  const auto value = as<Array>(array).Value(index);
  if constexpr (std::is_same_v<decltype(value), const bool>)
    return Json(value);
  else if constexpr (std::is_floating_point_v<decltype(value)>)
    return Json(double{value});
  else if constexpr (std::is_unsigned_v<decltype(value)>)
    return Json(uint64_t{value});
  else
    return value < 0 ? Json(int64_t{value}) : Json(static_cast<uint64_t>(value));
}

Json decoded_value(const arrow::Array& array, int64_t index, RowSize& size) {
  const auto& encoded = as<arrow::DictionaryArray>(array);
  return arrow_value(*encoded.dictionary(), encoded.GetValueIndex(index), size);
}

using ValueOf = Json (*)(const arrow::Array& array, int64_t index, RowSize& size);

/// The function that reads values of a type, or null.
ValueOf value_of(arrow::Type::type wanted) {
  using arrow::Type;
  static constexpr std::pair<Type::type, ValueOf> kTypes[] = {
      {Type::BOOL, plain_value<arrow::BooleanArray>},
      {Type::INT8, plain_value<arrow::Int8Array>},
      {Type::UINT8, plain_value<arrow::UInt8Array>},
      {Type::INT16, plain_value<arrow::Int16Array>},
      {Type::UINT16, plain_value<arrow::UInt16Array>},
      {Type::INT32, plain_value<arrow::Int32Array>},
      {Type::UINT32, plain_value<arrow::UInt32Array>},
      {Type::INT64, plain_value<arrow::Int64Array>},
      {Type::UINT64, plain_value<arrow::UInt64Array>},
      {Type::FLOAT, plain_value<arrow::FloatArray>},
      {Type::DOUBLE, plain_value<arrow::DoubleArray>},
      {Type::STRING, text_value<arrow::StringArray>},
      {Type::LARGE_STRING, text_value<arrow::LargeStringArray>},
      {Type::STRING_VIEW, text_value<arrow::StringViewArray>},
      {Type::LIST, list_value<arrow::ListArray>},
      {Type::LARGE_LIST, list_value<arrow::LargeListArray>},
      {Type::LIST_VIEW, list_value<arrow::ListViewArray>},
      {Type::LARGE_LIST_VIEW, list_value<arrow::LargeListViewArray>},
      {Type::FIXED_SIZE_LIST, list_value<arrow::FixedSizeListArray>},
      {Type::STRUCT, struct_value},
      {Type::DICTIONARY, decoded_value},
      {Type::EXTENSION, extension_value},
      {Type::DATE32, shown_value},
      {Type::DATE64, shown_value},
      {Type::TIMESTAMP, shown_value},
      {Type::TIME32, shown_value},
      {Type::TIME64, shown_value},
      {Type::DECIMAL128, shown_value},
      {Type::DECIMAL256, shown_value},
  };
  for (const auto& [type, value] : kTypes)
    if (type == wanted) return value;
  return nullptr;
}

}  // namespace

Json arrow_value(const arrow::Array& array, int64_t index, RowSize& size) {
  ++size.values;
  check_record_size("the record", size.bytes(), size.max_bytes);
  if (array.IsNull(index) || array.type_id() == arrow::Type::NA) return nullptr;
  const ValueOf value = value_of(array.type_id());
  if (value == nullptr)
    fail("is of type ", array.type()->ToString(),
         ", expected text, numbers, lists, structs or times");
  return value(array, index, size);
}

}  // namespace kvcal

#endif
