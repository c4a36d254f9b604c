#include <algorithm>
#include <array>

#include "core/registry.h"
#include "core/text.h"
#include "stored/integer_matrix.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

struct LayoutRow {
  std::string_view name;
  CodeFormat (*codes)(int64_t group);
};
constexpr std::array<LayoutRow, 3> kLayouts{
    {{"gemm", awq_integers}, {"gemv", awq_gemv_integers}, {"gemv_fast", awq_gemv_fast_codes}}};

/// GPTQModel writes the layout as format, too.
const LayoutRow& layout_of(const Json& config) {
  const LayoutRow* found = kLayouts.data();
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    const auto written = optional_string(config, key);
    if (!written) continue;
    const auto* row = std::ranges::find(kLayouts, normalised_name(*written), &LayoutRow::name);
    if (row == kLayouts.end())
      fail("key '", key, "' is '", *written,
           "', whose layout is not read; expected gemm, gemv or gemv_fast");
    found = row;
  }
  return *found;
}

ModuleSchemes read_awq(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method bits group_size zero_point w_bit q_group_size version "
                           "backend modules_to_not_convert format checkpoint_format method",
                           ' '));
  const char* bits_key = find_field(config, "w_bit") ? "w_bit" : "bits";
  if (const int64_t bits = required_int(config, bits_key); bits != 4)
    fail("key '", bits_key, "' is ", bits, ", expected 4");
  if (!optional_bool(config, "zero_point").value_or(true))
    fail("key 'zero_point' is false, which is not read; expected true");
  ModuleScheme scheme = scheme_of_method("awq");
  scheme.storage = layout_of(config).codes(
      positive_group(config, find_field(config, "q_group_size") ? "q_group_size" : "group_size"));
  return all_but(strings_of(config, "modules_to_not_convert"), ExceptionMatch::kParts,
                 std::move(scheme));
}

}  // namespace

extern constinit const StoredFormat kAwqFormat{
    .name = "awq", .method = "awq", .read_schemes = read_awq};

}  // namespace kvcal
