#include <algorithm>
#include <array>

#include "core/registry.h"
#include "core/text.h"
#include "stored/dynamic_schemes.h"
#include "stored/integer_matrix.h"
#include "stored/quantization_config.h"
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

void check_bits(const char* key, int64_t bits) {
  if (bits != 4) fail("key '", key, "' is ", bits, ", expected 4");
}

ModuleScheme awq_scheme(const LayoutRow& layout, int64_t group) {
  ModuleScheme scheme = scheme_of_method("awq");
  scheme.storage = layout.codes(group);
  return scheme;
}

/// A zero_point of false, which GPTQModel writes of symmetric weights, changes nothing here: their
/// zero points are stored, too.
ModuleSchemes read_awq(const QuantizationConfig& source) {
  const Json& config = source.json;
  check_keys(source, split("quant_method bits group_size zero_point w_bit q_group_size version "
                           "backend modules_to_not_convert format checkpoint_format method dynamic "
                           "desc_act lm_head pack_dtype meta sym",
                           ' '));
  if (optional_bool(config, "desc_act").value_or(false))
    fail("key 'desc_act' is true, which AWQ does not have; expected false");
  if (const auto dtype = optional_string(config, "pack_dtype"); dtype && *dtype != "int32")
    fail("key 'pack_dtype' is '", *dtype, "', which is not read; expected int32");
  const char* bits_key = find_field(config, "w_bit") ? "w_bit" : "bits";
  check_bits(bits_key, required_int(config, bits_key));
  const LayoutRow& layout = layout_of(config);
  const int64_t group =
      positive_group(config, find_field(config, "q_group_size") ? "q_group_size" : "group_size");
  return dynamic_schemes(
      find_field(config, "dynamic"), strings_of(config, "modules_to_not_convert"),
      awq_scheme(layout, group), [&](const Json& entry) {
        check_bits("bits", optional_int(entry, "bits").value_or(4));
        const bool has_group = find_field(entry, "group_size") != nullptr;
        return awq_scheme(layout, has_group ? positive_group(entry, "group_size") : group);
      });
}

}  // namespace

extern constinit const StoredFormat kAwqFormat{
    .name = "awq", .method = "awq", .read_schemes = read_awq};

}  // namespace kvcal
