#include "recipe/args_fields.h"

#include <charconv>
#include <utility>

#include "core/text.h"

namespace kvcal {
namespace {

/// Reads a value; an integer stays an integer, for recipe.yaml.
Json read_value(const Field& field, const ObserverSetting& setting) {
  const bool is_whole = field.value.text.find_first_not_of("+-0123456789") == std::string::npos;
  if (setting.is_integer || is_whole) return read_int(field);
  return read_number(field);
}

Json read_setting(const Field& field, const ObserverSetting& setting) {
  const Json value = read_value(field, setting);
  if (!setting.range.contains(value.get<double>()))
    fail_field(field, "found ", field.value.text, ", expected ", setting.expected);
  return value;
}

}  // namespace

std::string read_observer(const Field& field, ArgsRole role) {
  const std::string found = normalised_name(read_string(field));
  const ObserverRow* row = observers().find(found);
  const std::vector<std::string> names = observers_for(role);
  if (row == nullptr)
    fail_field(field, "unknown observer ", describe(field.value), did_you_mean(found, names),
               "; known are ", join(names, ", "));
  const std::string_view why_not = reason_for(row->why_not, role);
  if (!why_not.empty())
    fail_field(field, "found '", found, "', expected one of ", join(names, ", "), ": ", why_not);
  return found;
}

void settle_observer(QuantArgs& args, ArgsRole role,
                     const std::optional<std::string>& from_modifier) {
  if (from_modifier) {
    args.observer = from_modifier;
  } else if (!args.observer && !args.dynamic) {
    args.observer = default_observer(role);
  }
}

namespace {

/// Reads `observer_kwargs` of args whose observer is set. Throws Error for a setting that the
/// observer does not have, or that is out of range.
Json read_observer_kwargs(const Field& field, ArgsRole role, const QuantArgs& args) {
  check_map(field);
  Json settings = Json::object();
  if (field.value.entries.empty()) return settings;
  const YamlNode& first = field.value.entries.front().key;
  if (!args.observer)
    fail_at(first, field.path, ": found ", describe(first),
            ", expected an empty map: dynamic scales have no observer");
  const ObserverRow& row = observers().at(*args.observer);
  const bool is_without_weights = role == ArgsRole::kWeights && !row.has_weight_settings;
  if (row.settings.empty() || is_without_weights)
    fail_at(first, field.path, ": found ", describe(first), ", expected an empty map: observer ",
            *args.observer, " has no settings", is_without_weights ? " for weights" : "");
  for (const auto& [key, value] : field.value.entries) {
    const ObserverSetting* setting = nullptr;
    std::vector<std::string> names;
    for (const ObserverSetting& known : row.settings) {
      if (known.why_not.empty()) names.emplace_back(known.name);
      if (known.name == key.text) setting = &known;
    }
    if (setting == nullptr) fail_unknown_key(field, key, names);
    if (!setting->why_not.empty())
      fail_at(key, field.path, ": ", describe(key), " has no use here: ", setting->why_not);
    settings[key.text] = read_setting({field.path + "." + key.text, key, value}, *setting);
  }
  return settings;
}

/// Args under construction; checks between keys follow at the end.
struct Draft {
  ArgsRole role;
  QuantArgs args = {};
  bool has_type = false;
  std::optional<Field> group_size = {}, strategy = {}, block_structure = {}, observer_kwargs = {};
};

constexpr RoleReasons kEightBits{"engines load a KV cache with scales only as FP8 or INT8",
                                 "weights of other widths (INT4, NVFP4, MXFP4) are outside FP8",
                                 "inputs of other widths (INT4, NVFP4, MXFP4) are outside FP8"};

void read_num_bits(const Field& field, Draft& draft) {
  const int64_t bits = read_int(field);
  if (bits != 8)
    fail_field(field, "found ", bits, ", expected 8: ", reason_for(kEightBits, draft.role));
}

constexpr RoleReasons kFloat{"", "integer weights (INT8, INT4) are outside FP8",
                             "integer inputs (INT8) are outside FP8"};
constexpr RoleReasons kTypes{"'float' (FP8 is type float with num_bits 8) or 'int' (INT8)",
                             "'float' (FP8 is type float with num_bits 8)",
                             "'float' (FP8 is type float with num_bits 8)"};

void read_type(const Field& field, Draft& draft) {
  const std::string type = normalised_name(read_string(field));
  const std::string_view why_not_int = reason_for(kFloat, draft.role);
  if (type == "int" && !why_not_int.empty())
    fail_field(field, "found 'int', expected 'float': ", why_not_int);
  if (type != "float" && type != "int")
    fail_found(field, reason_for(kTypes, draft.role), did_you_mean(type, {"float"}));
  draft.args.type = type == "int" ? QuantType::kInt : QuantType::kFloat;
  draft.has_type = true;
}

constexpr RoleReasons kSymmetric{"a KV cache", "FP8 weights", "FP8 inputs"};

void read_symmetric(const Field& field, Draft& draft) {
  if (!read_bool(field))
    fail_field(field, "found false, expected true: no engine reads zero points of ",
               reason_for(kSymmetric, draft.role));
}

void read_group_size(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  const int64_t size = read_int(field);
  if (draft.role == ArgsRole::kKvCache)
    fail_field(field, "found ", size,
               ", expected null: engines load one scale a layer (tensor) or a head (attn_head)");
  if (size < -1 || size == 0)
    fail_field(field, "found ", size, ", expected a positive size, or -1 for one scale a channel");
  draft.args.group_size = size;
  draft.group_size.emplace(field);
}

/// A strategy's name in recipes, and the reason why an engine cannot load it.
struct StrategyRow {
  Strategy strategy;
  RoleReasons why_not;
};
constexpr std::string_view kNoLoader = "no engine loads KV scales of that granularity";
constexpr std::string_view kNoWeightLoader = "no engine loads FP8 weights of that granularity";
constexpr std::string_view kNoInputLoader = "no engine quantizes inputs with that granularity";
constexpr StrategyRow kStrategies[] = {
    {Strategy::kTensor, {"", "", ""}},
    {Strategy::kAttnHead, {"", "heads are for attention, a weight has none", ""}},
    {Strategy::kChannel, {"", "", kNoInputLoader}},
    {Strategy::kGroup, {kNoLoader, kNoWeightLoader, ""}},
    {Strategy::kBlock, {kNoLoader, "", "blocks are for weights"}},
    {Strategy::kTensorGroup,
     {kNoLoader, "it belongs to NVFP4, which is outside FP8",
      "it belongs to NVFP4, which is outside FP8"}},
    {Strategy::kToken,
     {"scales of a token exist only while serving (dynamic), there is nothing to calibrate",
      "tokens are for inputs, a weight has none", ""}},
};
constexpr RoleReasons kExpectedStrategy{"'tensor' or 'attn_head', or 'channel' of type int",
                                        "'tensor', 'channel' or 'block'",
                                        "'tensor', 'token', 'group' or 'attn_head'"};

/// found: the text that requested the strategy, for the message.
void accept_strategy(const Field& field, std::string_view found, const StrategyRow& row,
                     Draft& draft) {
  const std::string_view why_not = reason_for(row.why_not, draft.role);
  if (!why_not.empty())
    fail_field(field, "found ", found, ", expected ", reason_for(kExpectedStrategy, draft.role),
               ": ", why_not);
  draft.args.strategy = row.strategy;
  draft.strategy.emplace(field);
}

void read_strategy(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  const std::string found = normalised_name(read_string(field));
  std::vector<std::string> names;
  for (const StrategyRow& row : kStrategies) {
    names.push_back(name_of(row.strategy));
    if (names.back() == found) return accept_strategy(field, "'" + found + "'", row, draft);
  }
  const bool is_near_head =
      draft.role == ArgsRole::kKvCache && found.find("head") != std::string::npos;
  fail_found(field, reason_for(kExpectedStrategy, draft.role),
             is_near_head ? " (did you mean 'attn_head'?)" : did_you_mean(found, names));
}

constexpr RoleReasons kNoDynamic{
    "dynamic scales are made while serving, there is nothing to calibrate",
    "weights are quantized once, when the checkpoint is written", ""};

void read_dynamic(const Field& field, Draft& draft) {
  if (field.value.kind == YamlNode::Kind::kScalar && normalised_name(field.value.text) == "local")
    fail_field(field, "found 'local', expected ",
               draft.role == ArgsRole::kInputs ? "true or false" : "false",
               ": local scales belong to NVFP4 (tensor_group)");
  draft.args.dynamic = read_bool(field);
  const std::string_view why_not = reason_for(kNoDynamic, draft.role);
  if (draft.args.dynamic && !why_not.empty())
    fail_field(field, "found true, expected false: ", why_not);
}

/// A string of digits as the side length of a block; 0 for other texts and for lengths beyond any
/// weight.
int64_t side_length(std::string_view text) {
  constexpr int64_t kMost = int64_t{1} << 20;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole && value > 0 && value <= kMost ? value : 0;
}

/// Reads [rows, columns], or "128x128" as compressed-tensors also accepts.
void read_block_structure(const Field& field, Draft& draft) {
  if (is_null(field)) return;
  if (draft.role != ArgsRole::kWeights) fail_found(field, "null: blocks are for weights");
  std::vector<std::string_view> sides;
  const std::string_view text = field.value.text;
  if (const size_t x = text.find('x'); x != std::string_view::npos)
    sides = {text.substr(0, x), text.substr(x + 1)};
  for (const YamlNode& item : field.value.items)
    sides.push_back(item.is_quoted ? std::string_view() : std::string_view(item.text));
  std::vector<int64_t> block;
  for (const std::string_view side : sides)
    if (const int64_t length = side_length(side)) block.push_back(length);
  if (sides.size() != 2 || block.size() != 2)
    fail_found(field, "two positive integers, [rows, columns], such as [128, 128]");
  draft.args.block_structure = block;
  draft.block_structure.emplace(field);
}

constexpr RoleReasons kNoOrder{"GPTQ orders weights, not a KV cache",
                               "the order of weights is GPTQ's, which is not performed",
                               "GPTQ orders weights, not inputs"};

void read_actorder(const Field& field, Draft& draft) {
  if (is_null(field) || is_false(field)) return;
  fail_found(field, "null: ", reason_for(kNoOrder, draft.role));
}

void read_scale_dtype(const Field& field, Draft&) {
  if (is_null(field)) return;
  const bool is_microscaled = field.value.text.find("uint8") != std::string::npos;
  fail_found(field, "null: ",
             is_microscaled
                 ? "scales of eight bits belong to MXFP8 and MXFP4, which are outside FP8"
                 : "scales are float32 unless --scale-dtype says otherwise");
}

void read_zp_dtype(const Field& field, Draft&) {
  if (!is_null(field)) fail_found(field, "null: symmetric, so no zero point");
}

void read_observer(const Field& field, Draft& draft) {
  if (!is_null(field)) draft.args.observer = read_observer(field, draft.role);
}

void read_observer_kwargs(const Field& field, Draft& draft) {
  draft.observer_kwargs.emplace(field);
}

#define KVCAL_FIELD(key) {#key, read_##key},
constexpr FieldRow<Draft> kFields[] = {KVCAL_QUANT_ARGS(KVCAL_FIELD)};
#undef KVCAL_FIELD

/// Sets the strategy that group_size implies, and checks that the two agree. Source:
/// compressed-tensors `QuantizationArgs.validate_model_after`.
void settle_group_size(Draft& draft) {
  if (!draft.group_size) return;
  const Field& field = *draft.group_size;
  const int64_t size = *draft.args.group_size;
  const Strategy meant = size > 0 ? Strategy::kGroup : Strategy::kChannel;
  if (draft.args.strategy && *draft.args.strategy != meant)
    fail_field(field, "found ", size, ", which means strategy '", name_of(meant),
               "', expected null: strategy is '", name_of(*draft.args.strategy), "'");
  if (draft.args.strategy) return;
  for (const StrategyRow& row : kStrategies)
    if (row.strategy == meant)
      accept_strategy(field,
                      std::to_string(size) + ", which means strategy '" + name_of(meant) + "'", row,
                      draft);
}

/// Checks strategies that need another key, and keys that need a strategy.
void check_strategy(Draft& draft) {
  settle_group_size(draft);
  if (!draft.args.strategy) draft.args.strategy = Strategy::kTensor;
  const Strategy strategy = *draft.args.strategy;
  if (strategy == Strategy::kGroup && !draft.group_size)
    fail_field(*draft.strategy, "found 'group' without a group_size, expected group_size: 128");
  if (strategy == Strategy::kBlock && !draft.block_structure)
    fail_field(*draft.strategy,
               "found 'block' without a block_structure, expected block_structure: [128, 128]");
  if (strategy != Strategy::kBlock && draft.block_structure)
    fail_found(*draft.block_structure, "null: strategy is '", name_of(strategy), "'");
  if (draft.role == ArgsRole::kKvCache && strategy == Strategy::kChannel &&
      draft.args.type != QuantType::kInt)
    fail_field(*draft.strategy,
               "found 'channel', expected 'tensor' or 'attn_head', or type: int: engines load KV "
               "scales of channels for INT8 caches alone");
  if (draft.role != ArgsRole::kInputs) return;
  if (draft.args.dynamic && strategy == Strategy::kAttnHead)
    fail_field(*draft.strategy, "found 'attn_head', expected 'tensor', 'token' or 'group', or ",
               "dynamic: false: scales of a head are static");
  if (!draft.args.dynamic && (strategy == Strategy::kToken || strategy == Strategy::kGroup))
    fail_field(*draft.strategy, "found strategy '", name_of(strategy),
               "', expected 'tensor' or 'attn_head', or dynamic: true: scales of a ",
               name_of(strategy), " exist only while serving");
}

/// Checks that the observer has what it needs of the groups: histograms are of heads.
void check_observer(const Draft& draft) {
  if (draft.role != ArgsRole::kKvCache || draft.args.strategy != Strategy::kChannel) return;
  if (observers().at(*draft.args.observer).serves_channels) return;
  std::vector<std::string> names;
  for (const auto& [name, row] : observers().rows())
    if (row.serves_channels) names.push_back(name);
  fail_field(*draft.strategy, "found 'channel' with observer '", *draft.args.observer,
             "', which reads the values of whole heads; expected one of ", join(names, ", "));
}

}  // namespace

QuantArgs read_quant_args(const Field& field, ArgsRole role,
                          const std::optional<std::string>& from_modifier) {
  Draft draft{.role = role};
  read_fields<Draft>(field, kFields, draft);
  if (!draft.has_type)
    fail_at(field.key, field.path,
            ": 'type' is not given, which would mean 'int', expected type: float",
            role == ArgsRole::kKvCache ? ", or type: int for INT8" : "");
  check_strategy(draft);
  settle_observer(draft.args, role, from_modifier);
  check_observer(draft);
  if (draft.observer_kwargs)
    draft.args.observer_kwargs = read_observer_kwargs(*draft.observer_kwargs, role, draft.args);
  return std::move(draft.args);
}

}  // namespace kvcal
