#include "stored/fp8_args.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/registry.h"
#include "family/config_reader.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

// Source: compressed-tensors 0.19 `QuantizationArgs`, which refuses others.
constexpr std::array<std::string_view, 12> kArgsKeys{
    "num_bits", "type",     "symmetric",   "group_size", "strategy", "block_structure",
    "dynamic",  "actorder", "scale_dtype", "zp_dtype",   "observer", "observer_kwargs"};

Strategy parse_strategy(const std::string& word) {
  for (const Strategy strategy :
       {Strategy::kTensor, Strategy::kChannel, Strategy::kGroup, Strategy::kBlock, Strategy::kToken,
        Strategy::kTensorGroup, Strategy::kAttnHead})
    if (word == name_of(strategy)) return strategy;
  fail("key 'strategy' is '", word, "', which is not known");
}

int64_t positive(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value > 0 ? value : 0;
}

}  // namespace

std::vector<std::string> strings_of(const Json& object, std::string_view key) {
  std::vector<std::string> strings;
  const Json* list = find_field(object, key);
  if (!list) return strings;
  if (!list->is_array()) fail_kind(key, "a list of strings", *list);
  for (const Json& entry : *list) {
    if (!entry.is_string()) fail("key '", key, "' holds ", entry.dump(), ", expected strings");
    strings.push_back(entry.get<std::string>());
  }
  return strings;
}

std::pair<int64_t, int64_t> parse_block(std::string_view key, const Json* block) {
  std::vector<int64_t> sides;
  if (block && block->is_string()) {
    const std::string_view text = block->get_ref<const std::string&>();
    if (const size_t x = text.find('x'); x != std::string_view::npos)
      sides = {positive(text.substr(0, x)), positive(text.substr(x + 1))};
  } else if (block && block->is_array()) {
    for (const Json& side : *block)
      sides.push_back(side.is_number_integer() ? side.get<int64_t>() : 0);
  }
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxWidth; };
  if (sides.size() != 2 || !is_side(sides[0]) || !is_side(sides[1]))
    fail("key '", key, "' is ", block ? block->dump() : "absent", ", expected two sizes");
  return {sides[0], sides[1]};
}

QuantArgs parse_args(const Json& args) {
  if (!args.is_object()) fail("found ", kind_of(args), ", expected an object or null");
  check_keys(args, kArgsKeys);
  QuantArgs parsed;
  const std::string type = optional_string(args, "type").value_or("int");
  if (type != "int" && type != "float") fail("key 'type' is '", type, "', expected int or float");
  parsed.type = type == "int" ? QuantType::kInt : QuantType::kFloat;
  const int64_t bits = optional_int(args, "num_bits").value_or(8);
  if (bits < 1 || bits > 16) fail("key 'num_bits' is ", bits, ", expected 1 to 16");
  parsed.num_bits = static_cast<int>(bits);
  parsed.symmetric = optional_bool(args, "symmetric").value_or(true);
  parsed.group_size = optional_int(args, "group_size");
  parsed.scale_dtype = optional_string(args, "scale_dtype");
  if (const auto word = optional_string(args, "strategy")) parsed.strategy = parse_strategy(*word);
  parsed.strategy = resolved_strategy(parsed);
  const bool has_groups =
      parsed.strategy == Strategy::kGroup || parsed.strategy == Strategy::kTensorGroup;
  if (has_groups && parsed.group_size.value_or(0) < 1)
    fail("key 'group_size' is ", parsed.group_size ? std::to_string(*parsed.group_size) : "absent",
         ", expected 1 or more for strategy ", name_of(*parsed.strategy));
  return parsed;
}

int64_t positive_group(const Json& config, std::string_view key) {
  const int64_t group = required_int(config, key);
  if (group != -1 && (group < 1 || group > kMaxWidth))
    fail("key '", key, "' is ", group, ", expected -1, or 1 or more");
  return group == -1 ? 0 : group;
}

bool means_e4m3fn(std::string_view word) {
  std::string rest = normalised_name(word);
  for (const std::string_view prefix : {"torch.", "float8", "fp8", "f8", "_"})
    if (rest.starts_with(prefix)) rest.erase(0, prefix.size());
  return rest == "e4m3" || rest == "e4m3fn" || rest == "e4m3_fn";
}

Strategy parse_fp8_args(const Json& args) {
  if (!args.is_object()) fail("found ", kind_of(args), ", expected an object or null");
  check_keys(args, kArgsKeys);
  const std::string type = optional_string(args, "type").value_or("int");
  const int64_t bits = optional_int(args, "num_bits").value_or(8);
  if (type != "float" || bits != 8)
    fail("type '", type, "' of ", bits, " bits is not read, expected 'float' of 8 bits (FP8)");
  if (!optional_bool(args, "symmetric").value_or(true)) fail("asymmetric FP8 is not read");
  QuantArgs parsed;
  parsed.group_size = optional_int(args, "group_size");
  if (const auto word = optional_string(args, "strategy")) parsed.strategy = parse_strategy(*word);
  return resolved_strategy(parsed);
}

bool is_dynamic(const Json& args) {
  const Json* dynamic = find_field(args, "dynamic");
  if (!dynamic) return false;
  if (!dynamic->is_boolean()) fail("key 'dynamic' is ", dynamic->dump(), ", which is not run");
  return dynamic->get<bool>();
}

}  // namespace kvcal
