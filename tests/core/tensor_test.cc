#include "core/tensor.h"

#include <set>

#include "core/number.h"
#include "support/catch.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::message_of;

TEST_CASE("checked: products and sums are exact or refused") {
  CHECK(checked_mul(0, UINT64_MAX) == 0);
  CHECK(checked_mul(1, UINT64_MAX) == UINT64_MAX);
  CHECK(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1) == 0xffffffff00000000u);
  CHECK(message_of([] { checked_mul(uint64_t{1} << 32, uint64_t{1} << 32); }) ==
        "4294967296 times 4294967296 overflows 64 bits");
  CHECK(checked_add(UINT64_MAX - 1, 1) == UINT64_MAX);
  CHECK(message_of([] { checked_add(UINT64_MAX, 1); }) ==
        "18446744073709551615 plus 1 overflows 64 bits");
}

TEST_CASE("dtype: the table has every name of the format with its bits") {
  // Source: safetensors 0.8.0, `Dtype` and `bitsize`.
  const std::vector<std::pair<std::string, int>> names{
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  std::set<DType> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto dtype = dtype_from_name(names[i].first);
    INFO(names[i].first);
    REQUIRE(dtype.has_value());
    CHECK(name_of(*dtype) == names[i].first);
    CHECK(bits_of_dtype(*dtype) == names[i].second);
    // The writer sorts by this number.
    CHECK(static_cast<size_t>(*dtype) == i);
    seen.insert(*dtype);
  }
  CHECK(seen.size() == 22);
  for (const char* unknown : {"", "f32", "F32 ", "I4", "F128"}) CHECK(!dtype_from_name(unknown));
}

TEST_CASE("shape: counts elements and bytes, refuses what does not fit") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 0, 5}) == 0);
  CHECK(element_count({2, 3, 4}) == 24);
  CHECK(byte_count({2, 3}, DType::kF16) == 12);
  CHECK(byte_count({}, DType::kF64) == 8);
  CHECK(byte_count({2, 3}, DType::kF4) == 3);
  CHECK(byte_count({4}, DType::kF6E2M3) == 3);
  CHECK(message_of([] { byte_count({3}, DType::kF4); }) ==
        "shape [3] of F4 does not fill whole bytes");
  CHECK(message_of([] { byte_count({2}, DType::kF6E3M2); }) ==
        "shape [2] of F6_E3M2 does not fill whole bytes");
  CHECK(message_of([] { element_count({2, -1}); }) == "shape [2, -1] has a negative dimension");
  CHECK(message_of([] {
          element_count({INT64_MAX, 3});
        }) == "9223372036854775807 times 3 overflows 64 bits");
  // A whole file of this many bits cannot be addressed.
  CHECK_THROWS_AS(byte_count({int64_t{1} << 59}, DType::kF32), Error);
}

TEST_CASE("tensor: a view gives its elements as what they are, and as nothing else") {
  const std::vector<float> values{1.0f, -2.5f, 3.0f};
  const Tensor tensor = make_f32_tensor("a", {3}, values);
  const TensorView view = tensor.view();
  CHECK(view.name == "a");
  const auto elements = view.as<float>();
  CHECK(std::vector<float>(elements.begin(), elements.end()) == values);
  CHECK(message_of([&] { view.as<double>(); }) == "a holds F32, was read as F64");
  CHECK(message_of([&] { view.as<F16>(); }) == "a holds F32, was read as F16");
  TensorView shifted = view;
  shifted.bytes = view.bytes.subspan(1, 8);
  CHECK(message_of([&] { shifted.as<float>(); }) == "a is not aligned for F32");
  const Tensor empty = make_f32_tensor("e", {0, 4}, {});
  CHECK(empty.view().as<float>().empty());
}
