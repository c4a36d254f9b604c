#include "stored/quantization_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <vector>

#include "core/folder.h"
#include "core/interrupt.h"
#include "core/json.h"
#include "core/registry.h"
#include "core/text.h"
#include "family/config_reader.h"
#include "family/model_type_support.h"
#include "stored/stored_format.h"

namespace kvcal {
namespace {

/// " (did you mean 'compressed-tensors'?)" for a method that is written otherwise. Words that are
/// merely near, as hqq and gptq, do not mean the same.
std::string other_spelling(std::string_view method) {
  const auto letters = [](std::string_view word) {
    std::string kept = normalised_name(word);
    std::erase(kept, '_');
    return kept;
  };
  for (const StoredFormat* format : stored_formats())
    if (!format->method.empty() && letters(format->method) == letters(method))
      return " (did you mean '" + std::string(format->method) + "'?)";
  return "";
}

const StoredFormat* read_format(const Json& config) {
  if (!find_field(config, "quant_method") && find_field(config, "bits") &&
      find_field(config, "group_size"))
    fail(
        "has bits, group_size and no quant_method, as MLX writes them, whose weights are not "
        "read; ",
        kStartElsewhere);
  const std::string method = required_string(config, "quant_method");
  if (const StoredFormat* format = format_of_method(method)) return format;
  if (const std::string about = about_unread(method); !about.empty())
    fail("key 'quant_method' is '", method, "', whose weights are not read", about);
  std::vector<std::string> known;
  for (const StoredFormat* format : stored_formats())
    if (!format->method.empty()) known.emplace_back(format->method);
  std::string all;
  for (const std::string& one : known)
    all += (all.empty() ? "" : one == known.back() ? " or " : ", ") + one;
  fail("key 'quant_method' is '", method, "', which is not read", other_spelling(method),
       "; expected ", all);
}

/// The config of a format's own file, which may name another format.
QuantizationConfig read_own_file(const StoredFormat& format, const fs::path& file) {
  QuantizationConfig config{
      .format = &format, .is_nested = !format.nested_key.empty(), .where = file.string()};
  Json json = read_json_object(file);
  in_context(config.where, [&] {
    if (!config.is_nested) {
      if (find_field(json, "quant_method")) config.format = read_format(json);
      config.json = std::move(json);
      return;
    }
    const Json* inner = find_field(json, format.nested_key);
    if (!inner || !inner->is_object()) fail_missing(format.nested_key, "an object");
    config.json = *inner;
  });
  return config;
}

/// A place where a checkpoint may describe its quantization: file and key, and what it says.
using ConfigPlace = std::pair<std::string, const Json&>;

std::vector<ConfigPlace> places_of(const ModelDir& model_dir) {
  const std::string file = (model_dir.path() / "config.json").string() + ": ";
  std::vector<ConfigPlace> places;
  const auto add = [&](const Json& object, const std::string& prefix) {
    for (const char* key : {"quantization_config", "compression_config"})
      if (const Json* found = find_field(object, key); found && !found->is_null())
        places.emplace_back(file + prefix + key, *found);
  };
  add(model_dir.config(), "");
  if (const Json* text = find_field(model_dir.config(), "text_config"); text && text->is_object())
    add(*text, "text_config.");
  return places;
}

/// Throws Error unless a key has the same value in both places. where: of the file, of the config.
void check_same(const std::string& key, const Json& in_file, const Json& in_config,
                const std::array<std::string, 2>& where) {
  if (sorted_keys(in_file) == sorted_keys(in_config)) return;
  if (in_file.is_object() && in_config.is_object()) {
    const Json none;
    for (const auto& [name, value] : in_file.items()) {
      const Json* other = find_field(in_config, name);
      check_same(key + "." + name, value, other ? *other : none, where);
    }
    for (const auto& [name, value] : in_config.items())
      if (!find_field(in_file, name)) check_same(key + "." + name, none, value, where);
  }
  fail(where[0], ": key '", key, "' is ", in_file.dump(), ", and ", where[1], " says ",
       in_config.dump(), "; engines differ in which they read");
}

/// Adds the keys of weights that only the format's own file has. Throws Error where both have one
/// and disagree.
void add_own_file(const ModelDir& model_dir, QuantizationConfig& config) {
  const StoredFormat* format = format_beside(model_dir.path());
  // A file of another format is of weights that config.json describes anew.
  if (!format || format != config.format) return;
  const fs::path path = model_dir.path() / format->config_file;
  const QuantizationConfig beside = read_own_file(*format, path);
  const std::string outer = beside.is_nested ? std::string(format->nested_key) + "." : "";
  for (const std::string_view key : split(format->weight_keys, ' ')) {
    const Json *in_file = find_field(beside.json, key), *in_config = find_field(config.json, key);
    if (in_file && in_config)
      check_same(outer + std::string(key), *in_file, *in_config, {path.string(), config.where});
    else if (in_file)
      config.json[std::string(key)] = *in_file;
  }
}

}  // namespace

const StoredFormat* format_beside(const fs::path& folder) {
  for (const StoredFormat* format : stored_formats())
    if (!format->config_file.empty() && is_there(folder / format->config_file)) return format;
  return nullptr;
}

QuantizationConfig read_quantization_config(const ModelDir& model_dir) {
  throw_if_interrupted();  // of a config.json with lists as long as the limits allow
  const std::vector<ConfigPlace> places = places_of(model_dir);
  const Json* of_mlx = find_field(model_dir.config(), "quantization");
  if (places.empty() && of_mlx && of_mlx->is_object() && find_field(*of_mlx, "group_size"))
    in_context((model_dir.path() / "config.json").string() + ": quantization",
               [&] { return read_format(*of_mlx); });
  if (places.empty()) {
    const StoredFormat* format = format_beside(model_dir.path());
    return format ? read_own_file(*format, model_dir.path() / format->config_file)
                  : QuantizationConfig{};
  }
  const auto& [where, json] = places.front();
  for (size_t i = 1; i < places.size(); ++i)
    if (const auto& [other, said] = places[i]; sorted_keys(said) != sorted_keys(json))
      fail(other, ": differs from ", where, ", and engines differ in which they read");
  QuantizationConfig config{.where = where};
  in_context(where, [&, &json = json] {
    if (!json.is_object()) fail("found ", kind_of(json), ", expected an object");
    config.format = read_format(json);
    const std::string_view key = config.format->nested_key;
    const Json* inner = key.empty() ? nullptr : find_field(json, key);
    config.is_nested = inner != nullptr;
    config.json = inner ? *inner : json;
  });
  add_own_file(model_dir, config);
  return config;
}

std::string near_word(std::string_view word, std::span<const std::string_view> known) {
  const auto digits = [](std::string_view text) {
    std::string kept;
    std::ranges::copy_if(text, std::back_inserter(kept),
                         [](char c) { return c >= '0' && c <= '9'; });
    return kept;
  };
  std::vector<std::string> same;
  for (const std::string_view one : known)
    if (digits(one) == digits(word)) same.emplace_back(one);
  return did_you_mean(word, same);
}

namespace {

/// Whether a key is known, or its value says nothing: transformers and llm-compressor write null
/// for keys of newer or older versions, and empty lists.
bool says_nothing_new(const std::string& key, const Json& value,
                      std::span<const std::string_view> known) {
  return std::ranges::find(known, key) != known.end() || value.is_null() || value == "" ||
         (value.is_structured() && value.empty());
}

/// The names that formats give to lists of modules that stay in 16 bits, or to the modules that do
/// not.
constexpr std::string_view kModuleLists =
    "exclude exclude_modules ignore ignored_layers llm_int8_skip_modules modules_to_not_convert "
    "quantized_layers";

std::string meant_by(const std::string& key, std::span<const std::string_view> known) {
  return did_you_mean(key, {known.begin(), known.end()});
}

[[noreturn]] void fail_unknown(const std::string& key, const std::string& why) {
  throw UnknownKey("unknown key '" + key + "'" + why);
}

}  // namespace

void check_keys(const QuantizationConfig& config, std::span<const std::string_view> known) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : config.json.items()) {
    if (says_nothing_new(key, value, known)) continue;
    if (has_word(kModuleLists, key))
      fail_unknown(key, ": a list of modules that quant_method " +
                            std::string(config.format ? config.format->method : "") +
                            " does not have");
    if (const std::string meant = meant_by(key, known); !meant.empty()) fail_unknown(key, meant);
    unknown.push_back("'" + key + "'");
  }
  if (unknown.empty() || !config.warnings) return;
  config.warnings->push_back(config.where + ": unknown " +
                             (unknown.size() == 1 ? "key " : "keys ") + join(unknown, ", ") +
                             (unknown.size() == 1 ? " is" : " are") + " passed over");
}

void check_keys(const Json& object, std::span<const std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (!says_nothing_new(key, value, known)) fail_unknown(key, meant_by(key, known));
}

namespace {

/// Sets the strategy by compressed-tensors' rules.
void settle_strategy(const Json& args, QuantArgs& parsed) {
  parsed.group_size = optional_int(args, "group_size");
  if (const auto word = optional_string(args, "strategy")) {
    parsed.strategy = find_strategy(*word);
    if (!parsed.strategy) fail("key 'strategy' is '", *word, "', which is not known");
  }
  parsed.strategy = resolved_strategy(parsed);
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
  check_keys(args, kQuantArgsKeys);
  QuantArgs parsed;
  const std::string type = optional_string(args, "type").value_or("int");
  if (type != "int" && type != "float") fail("key 'type' is '", type, "', expected int or float");
  parsed.type = type == "int" ? QuantType::kInt : QuantType::kFloat;
  const int64_t bits = optional_int(args, "num_bits").value_or(8);
  if (bits < 1 || bits > 16) fail("key 'num_bits' is ", bits, ", expected 1 to 16");
  parsed.num_bits = static_cast<int>(bits);
  parsed.symmetric = optional_bool(args, "symmetric").value_or(true);
  parsed.scale_dtype = optional_string(args, "scale_dtype");
  settle_strategy(args, parsed);
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
  check_keys(args, kQuantArgsKeys);
  const std::string type = optional_string(args, "type").value_or("int");
  const int64_t bits = optional_int(args, "num_bits").value_or(8);
  if (type != "float" || bits != 8)
    fail("type '", type, "' of ", counted(bits, "bit"),
         " is not read, expected 'float' of 8 bits (FP8)");
  if (!optional_bool(args, "symmetric").value_or(true)) fail("asymmetric FP8 is not read");
  QuantArgs parsed;
  settle_strategy(args, parsed);
  return *parsed.strategy;
}

bool is_dynamic(const Json& args) {
  const Json* dynamic = find_field(args, "dynamic");
  if (!dynamic) return false;
  if (!dynamic->is_boolean()) fail("key 'dynamic' is ", dynamic->dump(), ", which is not run");
  return dynamic->get<bool>();
}

const Json* object_member(const Json& object, std::string_view key) {
  const Json* found = member(object, key);
  if (found && !found->is_object()) fail_kind(key, "an object", *found);
  return found;
}

}  // namespace kvcal
