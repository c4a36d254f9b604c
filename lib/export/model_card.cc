#include "export/model_card.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "core/file.h"
#include "core/folder.h"
#include "core/text.h"
#include "core/utf8.h"
#include "export/writer.h"
#include "recipe/yaml.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"

namespace kvcal {
namespace {

constexpr std::string_view kAccuracy = "## Accuracy\n", kFacts = "## Facts\n";
constexpr std::string_view kTag = "kvcal", kCacheTag = "fp8-kv-cache";

using CardLines = std::vector<std::pair<std::string, std::string>>;

/// A member's text in one line; empty: none.
template <class... Keys>
std::string text_of(const Json& json, const Keys&... keys) {
  const Json* found = member(json, keys...);
  if (!found || !found->is_string()) return {};
  std::string text = found->get<std::string>();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// Text as code in a line of Markdown.
/// A text that Markdown and HTML show as it is. Source: CommonMark 0.31, 2.4.
std::string shown(std::string_view text) {
  constexpr std::string_view kSpecial = "\\`*[]<>|&#!";
  std::string result;
  for (const char c : text) {
    if (kSpecial.find(c) != std::string_view::npos) result += '\\';
    result += c == '\n' || c == '\r' ? ' ' : c;
  }
  return result;
}

std::string code(std::string text) {
  std::ranges::replace(text, '`', '\'');
  return "`" + text + "`";
}

/// A path's last part: cards name no folder of a machine.
std::string file_name(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  return name.empty() ? path : name;
}

/// "owner/name@COMMIT" as it is, a path's last part otherwise.
std::string source_text(const std::string& name) {
  return name.find('@') == name.npos ? file_name(name) : name;
}

/// A number, or the ends of a list of numbers; "-" otherwise.
std::string number_text(const Json& layer, std::string_view key) {
  const Json* value = member(layer, key);
  if (!value) return "-";
  if (value->is_number()) return short_float(value->get<double>());
  if (!value->is_array() || value->empty()) return "-";
  std::vector<double> heads;
  for (const Json& one : *value) {
    if (!one.is_number()) return "-";
    heads.push_back(one.get<double>());
  }
  return short_float(std::ranges::min(heads)) + " to " + short_float(std::ranges::max(heads)) +
         " (" + counted(heads.size(), "head") + ")";
}

/// Whose cache a layer's scales are for, where it is not the model's own layer's.
std::string mark_text(const Json& layer) {
  const Json *draft = member(layer, "draft"), *source = member(layer, "reads_cache_of");
  if (draft && *draft == Json(true)) return ", a draft";
  if (source && source->is_number_integer()) return ", reads the cache of layer " + source->dump();
  return {};
}

std::string scale_table(const Json& manifest) {
  const Json* layers = member(manifest, "layers");
  if (!layers || !layers->is_array() || layers->empty()) return {};
  std::string table =
      "| layer | scale of K | scale of V | largest K | largest V |\n| --- | --- | --- | --- | --- "
      "|\n";
  for (const Json& layer : *layers) {
    const Json* number = member(layer, "layer");
    table += "| " + (number && number->is_number_integer() ? number->dump() : std::string("-"));
    table += mark_text(layer);
    for (const char* key : {"k_scale", "v_scale", "k_amax", "v_amax"})
      table += " | " + number_text(layer, key);
    table += " |\n";
  }
  return table;
}

/// "512 samples, 262144 tokens"; empty where the manifest names no data.
std::string data_text(const Json& manifest) {
  std::string text = text_of(manifest, "dataset", "path");
  if (text.empty()) return {};
  text = code(source_text(text));
  for (const auto& [key, noun] :
       {std::pair("num_samples", "sample"), std::pair("num_tokens", "token")})
    if (const Json* number = member(manifest, "dataset", key);
        number && number->is_number_integer())
      text += ", " + counted(number->get<int64_t>(), noun);
  return text;
}

std::string held_text(const Json& manifest) {
  const Json* scheme = member(manifest, "recipe", "kv_cache_scheme");
  if (!scheme || !scheme->is_object()) return {};
  const std::string dtype = text_of(manifest, "conversion", "kv_cache_dtype");
  return "of K and V in FP8" + (dtype.empty() ? "" : " (" + dtype + ")") + ", " +
         (text_of(*scheme, "strategy") == "attn_head" ? "one for each head" : "one for each layer");
}

std::string weights_text(const Json& manifest) {
  const std::string scheme = text_of(manifest, "scheme");
  if (const Json* quantized = member(manifest, "quantized"); quantized && !scheme.empty())
    return scheme + ", " + counted(quantized->size(), "weight") + ", rounded to the nearest";
  const Json* linears = member(manifest, "linears");
  size_t count = 0;
  if (linears && linears->is_object())
    for (const auto& [name, linear] : linears->items())
      if (const Json* scale = member(linear, "weight_scale")) count += scale->is_number() ? 1 : 0;
  return count == 0 ? "" : "FP8, " + std::to_string(count) + " of them";
}

void add_unless_empty(CardLines& lines, std::string label, std::string text) {
  if (!text.empty()) lines.emplace_back(std::move(label), std::move(text));
}

std::vector<std::string> tags_of(const ModelCard& card, const Json& manifest,
                                 const std::string& format) {
  std::vector<std::string> tags{std::string(kTag)};
  const std::string scheme = ascii_lower(text_of(manifest, "scheme"));
  const bool is_rewrite = format.empty();
  if ((scheme.empty() && !is_rewrite) || scheme.starts_with("fp8")) tags.emplace_back("fp8");
  if (!card.scales.empty()) tags.emplace_back(kCacheTag);
  if (!scheme.empty() && scheme != "fp8") tags.push_back(scheme);
  if (!is_rewrite)
    for (const std::string& name : joined_names(format)) tags.push_back(name);
  return tags;
}

/// "key: text", or a list below the key.
std::string yaml_field(const CardField& field) {
  if (!field.is_list) return field.key + ": " + yaml_string(field.values.front()) + "\n";
  std::string text = field.key + ":\n";
  for (const std::string& value : field.values) text += "- " + yaml_string(value) + "\n";
  return text;
}

/// The source's values and ours, each once.
CardField merged(std::string key, const SourceCard& source, const std::vector<std::string>& ours) {
  CardField field{.key = std::move(key), .values = {}, .is_list = true};
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& value) {
    if (seen.insert(value).second) field.values.push_back(value);
  };
  if (const CardField* theirs = source.find(field.key)) std::ranges::for_each(theirs->values, add);
  std::ranges::for_each(ours, add);
  return field;
}

/// The source's tags without ours, which an output of kvcal has of the format that it had.
SourceCard without_our_tags(SourceCard source) {
  for (CardField& field : source.fields)
    if (field.key == "tags")
      std::erase_if(field.values, [](const std::string& tag) {
        return tag == kTag || tag == kCacheTag || kWriters.find(tag) != nullptr;
      });
  return source;
}

/// A base that the card of a quantized source names stays: the source is a step on the way.
std::string base_of(const ModelCard& card, const SourceCard& source) {
  if (!card.base_model.empty()) return card.base_model;
  const CardField* relation = source.find("base_model_relation");
  const CardField* base = source.find("base_model");
  const bool is_step = relation && base && relation->values.front() == "quantized";
  return is_step ? base->values.front() : std::string();
}

std::string front_matter(const ModelCard& card, const SourceCard& source) {
  std::string text = "---\n";
  if (const std::string base = base_of(card, source); !base.empty())
    text += "base_model: " + yaml_string(base) + "\nbase_model_relation: quantized\n";
  for (const char* key :
       {"license", "license_name", "license_link", "language", "library_name", "pipeline_tag"})
    if (const CardField* field = source.find(key)) text += yaml_field(*field);
  if (const CardField datasets = merged("datasets", source, card.datasets);
      !datasets.values.empty())
    text += yaml_field(datasets);
  return text + yaml_field(merged("tags", without_our_tags(source), card.tags)) + "---\n";
}

/// A fence that no run of backticks in text closes.
std::string fenced(const std::string& text, std::string_view language) {
  size_t longest = 2;
  for (size_t i = 0, run = 0; i < text.size(); ++i) {
    run = text[i] == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fence + std::string(language) + "\n" + text + "\n" + fence + "\n";
}

std::string list_of(const CardLines& lines) {
  return join(lines, "",
              [](const auto& line) { return "- " + line.first + ": " + line.second + "\n"; });
}

/// Nothing where nothing is known.
std::string accuracy_of(const CardLines& lines) {
  return lines.empty() ? "" : std::string(kAccuracy) + "\n" + list_of(lines) + "\n";
}

std::string smoothed_text(SmoothedFor cache) {
  const std::string name = code(std::string(name_of(cache)));
  return cache == SmoothedFor::kFp8E4m3
             ? "the same function, its K turned and scaled for a KV cache of " + name +
                   " with one scale a layer or head, 1.0 or calibrated; others, such as E5M2 and "
                   "dynamic FP8, may "
                   "lose far more than with the source"
             : "the same function, with even channels of K and V for a KV cache of " + name;
}

constexpr size_t kMaxBytes = size_t{1} << 20;

/// Text with line feeds alone, without a byte order mark.
std::string with_line_feeds(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  std::string lines;
  lines.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r')
      lines += text[i];
    else if (i + 1 == text.size() || text[i + 1] != '\n')
      lines += '\n';
  }
  return lines;
}

std::string without_blank_ends(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t last = text.find_last_not_of(kBlank);
  if (last == text.npos) return {};
  const size_t first = text.find_first_not_of(kBlank);
  const size_t line = text.rfind('\n', first);  // the first line keeps its indentation
  const size_t begin = line == text.npos ? 0 : line + 1;
  return std::string(text.substr(begin, last + 1 - begin));
}

/// Front matter, nullopt where a card has none, and the text below it.
using CardParts = std::pair<std::optional<std::string>, std::string>;

/// The line that begins at `at`, without blanks at its end.
std::string_view line_at(std::string_view text, size_t at) {
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  while (line.ends_with(' ') || line.ends_with('\t')) line.remove_suffix(1);
  return line;
}

CardParts split_card(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos || line_at(text, first) != "---") return {std::nullopt, text};
  const size_t begin = text.find('\n', first);
  for (size_t at = begin; at != text.npos; at = text.find('\n', at + 1)) {
    if (line_at(text, at + 1) != "---") continue;
    const size_t end = text.find('\n', at + 1);
    return {text.substr(begin + 1, std::max(at, begin + 1) - begin - 1),
            end == text.npos ? std::string() : text.substr(end + 1)};
  }
  return {std::nullopt, text};
}

/// nullopt: not a text and no list of texts.
std::optional<CardField> field_of(const YamlEntry& entry) {
  CardField field{.key = entry.key.text, .values = {}};
  const YamlNode& value = entry.value;
  field.is_list = value.kind == YamlNode::Kind::kList;
  if (value.kind == YamlNode::Kind::kScalar) field.values.push_back(value.text);
  for (const YamlNode& item : value.items) {
    if (item.kind != YamlNode::Kind::kScalar) return std::nullopt;
    field.values.push_back(item.text);
  }
  if (field.values.empty()) return std::nullopt;
  return field;
}

/// False: front is no map of YAML.
bool read_fields(const std::string& front, std::vector<CardField>& fields) {
  try {
    const YamlNode root = parse_yaml(front, {.max_bytes = kMaxBytes, .what = "model card"});
    if (root.kind == YamlNode::Kind::kNull) return true;
    if (root.kind != YamlNode::Kind::kMap) return false;
    for (const YamlEntry& entry : root.entries)
      if (auto field = field_of(entry)) fields.push_back(*std::move(field));
    return true;
  } catch (const Error&) {
    return false;  // a card says nothing that an engine reads
  }
}

/// The end of the part that kvcal wrote in the text below the front matter; 0: there is none.
size_t end_of_ours(const std::string& text) {
  if (!without_blank_ends(text).starts_with(kCardBegin)) return 0;
  const size_t end = text.find(kCardEnd);
  return end == text.npos ? 0 : end + kCardEnd.size();
}

}  // namespace

ModelCard card_of_manifest(const Json& manifest, const std::string& checkpoint,
                           const std::string& format) {
  ModelCard card;
  card.scales = scale_table(manifest);
  const std::string weights = weights_text(manifest);
  const std::string scheme = text_of(manifest, "scheme");
  const std::string model = text_of(manifest, "model", "path");
  const std::string name = source_text(model.empty() ? checkpoint : model);
  const auto smoothed = smoothed_for(manifest);
  card.title = shown(file_name(name.substr(0, name.find('@')))) +
               (!scheme.empty() ? ", weights in " + scheme
                : smoothed && card.scales.empty()
                    ? ", rewritten for a KV cache of " + std::string(name_of(*smoothed))
                : card.scales.empty() ? ", weights in FP8"
                : weights.empty()     ? " with an FP8 KV cache"
                                      : ", weights and KV cache in FP8");
  add_unless_empty(card.facts, "source", code(name));
  add_unless_empty(card.facts, "made by", text_of(manifest, "created_by"));
  if (const std::string recipe = text_of(manifest, "recipe", "path"); !recipe.empty())
    card.facts.emplace_back("recipe", code(file_name(recipe)));
  add_unless_empty(card.facts, "data", data_text(manifest));
  add_unless_empty(card.facts, "weights", weights);
  if (smoothed) card.facts.emplace_back("rewritten", smoothed_text(*smoothed));
  if (!card.scales.empty()) add_unless_empty(card.facts, "scales", held_text(manifest));
  if (member(manifest, "conversion")) {
    const std::string format = text_of(manifest, "conversion", "form");
    card.facts.emplace_back("converted",
                            "from " + code(source_text(checkpoint)) +
                                (format.empty() ? "" : ", scales in the form of " + format));
  }
  if (!format.empty()) card.facts.emplace_back("format", code(format));
  card.tags = tags_of(card, manifest, format);
  return card;
}

std::string card_text(const ModelCard& card, const SourceCard& source) {
  std::string text = front_matter(card, source) + std::string(kCardBegin) + "\n# " + card.title +
                     "\n\n" + accuracy_of(card.accuracy) + std::string(kFacts) + "\n" +
                     list_of(card.facts);
  const auto lines = [](const std::vector<std::string>& all) {
    return join(all, "", [](const std::string& line) { return "- " + line + "\n"; });
  };
  if (!card.serving.empty()) text += "\n## Serve\n\nIn this folder:\n\n" + lines(card.serving);
  if (!card.notes.empty()) text += "\n## Notes\n\n" + lines(card.notes);
  if (!card.scales.empty())
    text += "\n## Scales\n\n<details><summary>Scales of every layer</summary>\n\n" + card.scales +
            "\n</details>\n";
  text += "\n" + std::string(kCardEnd) + "\n";
  if (!source.unread.empty())
    text += "\nFront matter of the source's card, which is no valid YAML:\n\n" +
            fenced(source.unread, "yaml");
  if (!source.text.empty()) text += "\n" + source.text + "\n";
  return text;
}

std::string with_accuracy(const std::string& card, const CardLines& lines) {
  const size_t begin = card.find(kCardBegin);
  if (begin == card.npos) return card;
  const size_t facts = card.find(kFacts, begin);
  if (facts == card.npos) return card;
  const size_t before = card.substr(0, facts).find(kAccuracy, begin);
  return card.substr(0, std::min(facts, before)) + accuracy_of(lines) + card.substr(facts);
}

const CardField* SourceCard::find(std::string_view key) const {
  const auto found = std::ranges::find(fields, key, &CardField::key);
  return found == fields.end() ? nullptr : &*found;
}

SourceCard parse_source_card(std::string_view text) {
  const auto [front, below] = split_card(with_line_feeds(text));
  SourceCard card;
  if (front && !read_fields(*front, card.fields)) card.unread = without_blank_ends(*front);
  const size_t ours = end_of_ours(below);
  card.is_ours = ours > 0;
  card.text = without_blank_ends(below.substr(ours));
  return card;
}

bool is_readable_card(const std::filesystem::path& folder) {
  const MappedFile file(folder / kCardName);
  const auto bytes = file.bytes();
  return bytes.size() <= kMaxBytes &&
         utf8::is_valid({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

SourceCard read_source_card(const std::filesystem::path& folder) {
  if (!is_there(folder / kCardName) || !is_readable_card(folder)) return {};
  return parse_source_card(read_text(folder / kCardName));
}

}  // namespace kvcal
