#include "hub/hub_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "core/ascii.h"
#include "core/error.h"
#include "core/join.h"

namespace kvcal {
namespace {

constexpr std::string_view kSafetensors = ".safetensors", kIndex = ".safetensors.index.json";
constexpr std::string_view kTemplates = "additional_chat_templates/";

bool ends_with_any(std::string_view name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool has(std::span<const std::string> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_beside_weights(std::string_view name) {
  constexpr std::array<std::string_view, 9> kEnds{".json", ".jinja", ".model", ".tiktoken", ".txt",
                                                  ".md",   ".yaml",  ".yml",   ".py"};
  constexpr std::array<std::string_view, 6> kTexts{"license", "licence",    "notice",
                                                   "readme",  "use_policy", "citation"};
  const std::string lower = ascii_lower(std::string(name));
  return ends_with_any(lower, kEnds) || std::ranges::any_of(kTexts, [&](std::string_view text) {
           return lower.starts_with(text) && lower.find('.') == lower.npos;
         });
}

/// Weights in forms that are not read, for the message.
bool is_other_weights(std::string_view name) {
  constexpr std::array<std::string_view, 8> kEnds{".bin",     ".pt",   ".pth", ".ckpt",
                                                  ".msgpack", ".gguf", ".h5",  ".onnx"};
  return ends_with_any(name, kEnds);
}

}  // namespace

std::vector<std::string> model_files(std::span<const std::string> names) {
  const bool has_model = std::ranges::any_of(names, [](const std::string& name) {
    return name.starts_with("model") && name.ends_with(kSafetensors);
  });
  std::vector<std::string> wanted, others;
  bool has_weights = false;
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    const bool is_template = name.starts_with(kTemplates) && name.ends_with(".jinja");
    if (name.find('/') != name.npos && !is_template) continue;
    if (is_other_weights(name)) others.push_back(name);
    if (has_model && name.starts_with("consolidated")) continue;
    has_weights = has_weights || name.ends_with(kSafetensors);
    if (name.ends_with(kSafetensors) || is_template || is_beside_weights(name))
      wanted.push_back(name);
  }
  if (!has_weights)
    fail("has no safetensors", others.empty() ? "" : ", but " + join(others, ", "),
         "; expected model.safetensors or model-00001-of-....safetensors");
  return wanted;
}

bool describes_weights(std::string_view name, uint64_t size) {
  constexpr std::array<std::string_view, 3> kLong{kIndex, "kv_cache_scales.json",
                                                  "kvcal_manifest.json"};
  constexpr std::array<std::string_view, 4> kEnds{".json", ".py", ".yaml", ".yml"};
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  return ends_with_any(name, kLong) || (ends_with_any(name, kEnds) && size <= kMostBytes);
}

MissingModelFiles missing_model_files(std::span<const std::string> names,
                                      std::span<const std::string> indexed) {
  constexpr std::array<std::string_view, 4> kTokenizers{"tokenizer.json", "tokenizer.model",
                                                        "vocab.json", "tekken.json"};
  MissingModelFiles missing;
  if (!has(names, "config.json")) missing.needed.push_back("config.json");
  for (const std::string& shard : indexed)
    if (!has(names, shard)) missing.needed.push_back(shard);
  const bool has_weights = std::ranges::any_of(
      names, [](const std::string& name) { return name.ends_with(kSafetensors); });
  const bool has_index =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(kIndex); });
  const bool is_shard_alone = !has(names, "model.safetensors") && !has_index;
  if (!has_weights && indexed.empty()) missing.needed.push_back("model.safetensors");
  if (has_weights && is_shard_alone) missing.needed.push_back("model.safetensors.index.json");
  missing.lacks_tokenizer = std::ranges::none_of(
      kTokenizers, [&](std::string_view tokenizer) { return has(names, tokenizer); });
  return missing;
}

namespace {

/// Kinds of data files, the one that is taken where a repository has several first.
constexpr std::array<std::array<std::string_view, 2>, 6> kDataKinds{{{".parquet", ".parquet"},
                                                                     {".arrow", ".feather"},
                                                                     {".jsonl", ".ndjson"},
                                                                     {".json", ".json"},
                                                                     {".csv", ".tsv"},
                                                                     {".txt", ".text"}}};

/// Name without the ending of a packed file.
std::string_view unpacked_name(std::string_view name) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) return name.substr(0, name.size() - packed.size());
  return name;
}

size_t kind_of_data(const std::string& name) {
  const std::string lower = ascii_lower(name);
  const std::string_view plain = unpacked_name(lower);
  size_t kind = 0;
  while (kind < kDataKinds.size() && !ends_with_any(plain, kDataKinds[kind])) ++kind;
  return kind;
}

/// What lies beside data and is none.
bool is_beside_data(const std::string& name) {
  constexpr std::array<std::string_view, 8> kBeside{"readme",       "license",      "licence",
                                                    "dataset_info", "dataset_dict", "state.json",
                                                    "config",       "requirements"};
  const std::string file = ascii_lower(std::filesystem::path(name).filename().string());
  return name.starts_with('.') || file.starts_with('.') ||
         std::ranges::any_of(kBeside,
                             [&](std::string_view text) { return file.starts_with(text); });
}

/// A file's name taken apart: "data/train-00001-of-00003-0123456789abcdef.parquet".
struct Shard {
  std::string group;    ///< "data/train", or the whole name where it is no shard
  std::string pattern;  ///< of all shards of the group
  size_t number = 0, count = 0;
};

Shard shard_of(const std::string& name) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kDigits = 5;
  const auto is_number = [&](size_t at) {
    return at + kDigits <= name.size() &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(at),
                       name.begin() + static_cast<std::ptrdiff_t>(at + kDigits),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  const size_t of = name.rfind(kOf);
  if (of == name.npos || of < kDigits + 1 || name[of - kDigits - 1] != '-' ||
      !is_number(of - kDigits) || !is_number(of + kOf.size()))
    return {.group = name, .pattern = name};
  const std::string count = name.substr(of + kOf.size(), kDigits);
  const std::string group = name.substr(0, of - kDigits - 1);
  const size_t dot = name.find('.', of);
  return {.group = group,
          .pattern = group + "-[0-9][0-9][0-9][0-9][0-9]" + std::string(kOf) + count + "*" +
                     (dot == name.npos ? "" : name.substr(dot)),
          .number = std::stoul(name.substr(of - kDigits, kDigits)),
          .count = std::stoul(count)};
}

/// Names that the id's path selects: a file, a folder, or a pattern.
bool is_selected(const std::string& name, const std::string& path) {
  return path.empty() || name == path ||
         name.starts_with(path.ends_with('/') ? path : path + "/") ||
         ::fnmatch(path.c_str(), name.c_str(), FNM_PATHNAME) == 0;
}

void check_shards(const HubId& id, const std::string& group, const std::vector<Shard>& shards) {
  std::set<size_t> numbers;
  for (const Shard& shard : shards) numbers.insert(shard.number);
  for (size_t i = 0; i < shards.front().count; ++i)
    if (!numbers.contains(i))
      fail(id.text(), ": shard ", i, " of the ", shards.front().count, " of '", group,
           "' is missing");
}

}  // namespace

HubDataFiles data_files(const HubId& id, std::span<const std::string> names) {
  size_t kind = kDataKinds.size();
  const auto is_data = [&](const std::string& name) {
    return is_selected(name, id.path) && (name == id.path || !is_beside_data(name));
  };
  for (const std::string& name : names)
    if (is_data(name)) kind = std::min(kind, kind_of_data(name));
  std::map<std::string, std::vector<Shard>> groups;
  HubDataFiles files;
  for (const std::string& name : names) {
    if (kind == kDataKinds.size() || !is_data(name) || kind_of_data(name) != kind) continue;
    const Shard shard = shard_of(name);
    groups[shard.group].push_back(shard);
    files.names.push_back(name);
    files.path = shard.pattern;
  }
  if (groups.empty())
    fail(id.text(), ": has no data file (.parquet, .arrow, .jsonl, .json, .csv, .txt)",
         id.path.empty() ? "" : " that '" + id.path + "' names");
  if (groups.size() > 1) {
    constexpr size_t kShown = 12;
    std::vector<std::string> choices;
    for (const auto& [group, shards] : groups)
      if (choices.size() < kShown)
        choices.push_back("'" + id.text() + "/" + group + (shards[0].count > 0 ? "-*'" : "'"));
    fail(id.text(), ": holds ", groups.size(),
         " splits or parts; choose one: ", join(choices, ", "),
         groups.size() > kShown ? ", ..." : "");
  }
  const auto& [group, shards] = *groups.begin();
  if (shards.front().count > 0) check_shards(id, group, shards);
  return files;
}

}  // namespace kvcal
