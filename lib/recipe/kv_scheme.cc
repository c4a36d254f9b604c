#include "recipe/kv_scheme.h"

#include <utility>

namespace kvcal {
namespace {

/// An observer of llm-compressor. Names and meanings are theirs (docs/numerics.md).
struct ObserverRow {
  std::string_view name;
  bool is_performed = false;
  bool has_averaging_constant = false;
};
constexpr ObserverRow kObservers[] = {
    {.name = "static_minmax", .is_performed = true},
    {.name = "minmax", .is_performed = true, .has_averaging_constant = true},
    {.name = "memoryless_minmax", .is_performed = true},
    {.name = "mse"},
    {.name = "memoryless_mse"},
    {.name = "imatrix_mse"},
    {.name = "nvfp4_expanded_mse"},
    {.name = "nvfp4_expanded_imatrix"},
    {.name = "fouroversix"},
};

/// The scheme while it is being read; what depends on another key waits for the end.
struct Draft {
  QuantArgs args;
  bool has_type = false;
  /// Where a recipe names none, every element shown counts. llm-compressor falls back to "minmax".
  const ObserverRow* observer = &kObservers[0];
  std::optional<Field> observer_kwargs;
};

void read_num_bits(const Field& field, Draft&) {
  const int64_t bits = read_int(field);
  if (bits != 8)
    fail_field(field, "found ", bits,
               ", expected 8: engines load a KV cache with scales only as FP8");
}

void read_type(const Field& field, Draft& draft) {
  const std::string type = normalised_name(read_string(field));
  if (type == "int")
    fail_field(field,
               "found 'int', expected 'float': vLLM, SGLang and TGI load no integer KV cache");
  if (type != "float")
    fail_field(field, "found ", describe(field.value),
               ", expected 'float' (FP8 is type float with num_bits 8)",
               did_you_mean(type, {"float"}));
  draft.args.type = QuantType::kFloat;
  draft.has_type = true;
}

void read_symmetric(const Field& field, Draft&) {
  if (!read_bool(field))
    fail_field(field, "found false, expected true: no engine reads zero points of a KV cache");
}

void read_group_size(const Field& field, Draft&) {
  if (is_null(field)) return;
  fail_field(field, "found ", read_int(field),
             ", expected null: engines load one scale a layer (tensor) or a head (attn_head)");
}

/// What recipes may call a strategy, and why an engine cannot load it; no reason: it can.
struct StrategyRow {
  Strategy strategy;
  std::string_view why_not;
};
constexpr std::string_view kNoLoader = "no engine loads KV scales of that granularity";
constexpr StrategyRow kStrategies[] = {
    {Strategy::kTensor, ""},
    {Strategy::kAttnHead, ""},
    {Strategy::kChannel, kNoLoader},
    {Strategy::kGroup, kNoLoader},
    {Strategy::kBlock, kNoLoader},
    {Strategy::kTensorGroup, kNoLoader},
    {Strategy::kToken,
     "scales of a token exist only while serving (dynamic), there is nothing to calibrate"},
};

void read_strategy(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  const std::string found = normalised_name(read_string(field));
  std::vector<std::string> names;
  for (const StrategyRow& row : kStrategies) {
    names.push_back(name_of(row.strategy));
    if (names.back() != found) continue;
    if (!row.why_not.empty())
      fail_field(field, "found '", found, "', expected 'tensor' or 'attn_head': ", row.why_not);
    draft.args.strategy = row.strategy;
    return;
  }
  const std::string hint = found.find("head") != std::string::npos ? " (did you mean 'attn_head'?)"
                                                                   : did_you_mean(found, names);
  fail_field(field, "found ", describe(field.value), ", expected 'tensor' or 'attn_head'", hint);
}

void read_dynamic(const Field& field, Draft&) {
  if (field.value.kind == YamlNode::Kind::kScalar && normalised_name(field.value.text) == "local")
    fail_field(field, "found 'local', expected false: local scales belong to NVFP4 (tensor_group)");
  if (read_bool(field))
    fail_field(field,
               "found true, expected false: dynamic scales are made while serving, there is "
               "nothing to calibrate");
}

void read_block_structure(const Field& field, Draft&) {
  if (!is_null(field))
    fail_field(field, "found ", describe(field.value), ", expected null: blocks are for weights");
}

void read_actorder(const Field& field, Draft&) {
  if (is_null(field) || is_false(field)) return;
  fail_field(field, "found ", describe(field.value),
             ", expected null: GPTQ orders weights, not a KV cache");
}

void read_scale_dtype(const Field& field, Draft&) {
  if (!is_null(field))
    fail_field(field, "found ", describe(field.value),
               ", expected null: scales are float32 unless --scale-dtype says otherwise");
}

void read_zp_dtype(const Field& field, Draft&) {
  if (!is_null(field))
    fail_field(field, "found ", describe(field.value),
               ", expected null: symmetric, so no zero point");
}

void read_observer(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  const std::string found = normalised_name(read_string(field));
  std::vector<std::string> performed;
  for (const ObserverRow& row : kObservers) {
    if (row.is_performed) performed.emplace_back(row.name);
    if (row.name != found) continue;
    if (!row.is_performed)
      fail_field(field, "found '", found,
                 "', which is not performed yet for a KV cache, expected "
                 "static_minmax, minmax or memoryless_minmax");
    draft.observer = &row;
    return;
  }
  fail_field(field, "unknown observer ", describe(field.value), did_you_mean(found, performed),
             "; known are static_minmax, minmax, memoryless_minmax");
}

void keep_observer_kwargs(const Field& field, Draft& draft) {
  draft.observer_kwargs.emplace(field);
}

void read_averaging_constant(const Field& field, Draft& draft) {
  const double value = read_number(field);
  if (!(value > 0.0 && value <= 1.0))
    fail_field(field, "found ", value,
               ", expected a number over 0 and at most 1: the weight of a new sample");
  draft.args.observer_kwargs["averaging_constant"] = value;
}

constexpr FieldRow<Draft> kAveragingFields[] = {{"averaging_constant", read_averaging_constant}};

/// Read when the observer is known, wherever it stands in the map.
void read_observer_kwargs(const Field& field, Draft& draft) {
  const YamlNode& kwargs = field.value;
  if (!draft.observer->has_averaging_constant && !kwargs.entries.empty()) {
    const YamlNode& key = kwargs.entries.front().key;
    fail_at(key, field.path, ": found ", describe(key), ", expected an empty map: observer ",
            draft.observer->name, " has no settings");
  }
  read_fields<Draft>(field, kAveragingFields, draft);
}

// QuantizationArgs, in its order. Source: compressed-tensors `quantization/quant_args.py`.
constexpr FieldRow<Draft> kFields[] = {
    {"num_bits", read_num_bits},       {"type", read_type},
    {"symmetric", read_symmetric},     {"group_size", read_group_size},
    {"strategy", read_strategy},       {"block_structure", read_block_structure},
    {"dynamic", read_dynamic},         {"actorder", read_actorder},
    {"scale_dtype", read_scale_dtype}, {"zp_dtype", read_zp_dtype},
    {"observer", read_observer},       {"observer_kwargs", keep_observer_kwargs},
};

}  // namespace

QuantArgs read_kv_cache_scheme(const Field& field) {
  Draft draft;
  read_fields<Draft>(field, kFields, draft);
  if (!draft.has_type)
    fail_at(field.key, field.path,
            ": 'type' is not given, which would mean 'int', expected type: float");
  if (!draft.args.strategy) draft.args.strategy = Strategy::kTensor;
  draft.args.observer = draft.observer->name;
  if (draft.observer_kwargs) read_observer_kwargs(*draft.observer_kwargs, draft);
  return std::move(draft.args);
}

}  // namespace kvcal
