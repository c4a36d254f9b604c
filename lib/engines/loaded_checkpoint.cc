#include "engines/loaded_checkpoint.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <utility>

#include "checkpoint/model_dir.h"
#include "core/folder.h"
#include "core/text.h"
#include "stored/fp8_checkpoint.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// All files in the format, also those that no engine looks for: hidden ones, and SAFETENSORS.
std::vector<std::string> safetensors_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::filesystem::path& path : paths_in(folder)) {
    const std::string ending = ascii_lower(path.extension().string());
    if (ending == ".safetensors" && !is_folder(path)) names.push_back(path.filename().string());
  }
  return names;
}

/// As a pattern *.safetensors finds it.
bool is_found(const std::string& name) {
  return name.ends_with(".safetensors") && !name.starts_with('.');
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The files that the rules leave, before an index is read.
std::vector<std::string> candidates(const std::vector<std::string>& all, const FileRules& rules) {
  std::vector<std::string> names = all;
  std::erase_if(names, [&](const std::string& name) {
    return !is_found(name) || std::ranges::any_of(rules.leaves_out, [&](std::string_view word) {
      return name.find(word) != std::string::npos;
    });
  });
  const auto is_preferred = [&](const std::string& name) {
    return name.starts_with(rules.prefers);
  };
  if (!rules.prefers.empty() && std::ranges::any_of(names, is_preferred))
    std::erase_if(names, [&](const std::string& name) { return !is_preferred(name); });
  return names;
}

/// Whether the engine goes by a file in a folder below that it prefers, and does not look for it
/// there. Source: vLLM 0.33, `list_filtered_repo_files`, which compares the last part of paths.
bool prefers_inner_file(const std::filesystem::path& folder, const FileRules& rules) {
  if (rules.prefers.empty()) return false;
  std::error_code error;
  std::filesystem::recursive_directory_iterator files(folder, error), end;
  for (; !error && files != end; files.increment(error)) {
    const std::string name = files->path().filename().string();
    if (files.depth() > 0 && name.starts_with(rules.prefers) && name.ends_with(".safetensors"))
      return true;
  }
  return false;
}

/// The index that belongs to the files.
std::string index_of(const std::vector<std::string>& names, const FileRules& rules) {
  const bool is_preferred =
      !rules.prefers.empty() && !names.empty() && names[0].starts_with(rules.prefers);
  return is_preferred ? std::string(rules.prefers) + ".safetensors.index.json"
                      : std::string(kIndexFileName);
}

void keep_indexed(LoadedFiles& files, const std::filesystem::path& index) {
  const std::vector<std::string> wanted =
      in_context(index.string(), [&] { return indexed_files(read_index(index)); });
  for (const std::string& name : wanted)
    if (!contains(files.names, name))
      files.refusal = index.filename().string() + " names " + name + ", which is not there";
  if (wanted.empty()) files.refusal = index.filename().string() + " names no file";
  std::erase_if(files.names, [&](const std::string& name) { return !contains(wanted, name); });
}

}  // namespace

LoadedFiles loaded_files(const std::filesystem::path& folder, const FileRules& rules) {
  const std::vector<std::string> all = safetensors_in(folder);
  LoadedFiles files{.names = candidates(all, rules), .others = {}, .refusal = {}};
  const std::string single(kSingleFileName);
  const std::filesystem::path index = folder / index_of(files.names, rules);
  const bool has_preferred = !files.names.empty() && !rules.prefers.empty() &&
                             files.names.front().starts_with(rules.prefers);
  if (!has_preferred && prefers_inner_file(folder, rules))
    files.refusal = "a folder below has " + std::string(rules.prefers) +
                    "*.safetensors, which it then looks for beside config.json";
  const bool prefers_single = rules.selection == ShardSelection::kSingleOrIndexed;
  if (prefers_single && contains(all, single)) {
    files.names = {single};
  } else if (rules.selection != ShardSelection::kAll && is_there(index)) {
    keep_indexed(files, index);
  } else if (prefers_single) {
    files.names.clear();
  }
  if (rules.counts_digits)
    std::ranges::sort(files.names, comes_before);  // vLLM 0.32, `_natural_sort_key`
  else
    std::ranges::sort(files.names);
  for (const std::string& name : all)
    if (!contains(files.names, name)) files.others.push_back(name);
  return files;
}

namespace {

/// Words of torch and the dtype that each stands for.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kWords{
    {{"float16", "float16"},
     {"half", "float16"},
     {"bfloat16", "bfloat16"},
     {"float32", "float32"},
     {"float", "float32"},
     {"float64", "float64"},
     {"double", "float64"},
     {"auto", "auto"}}};

auto word_of(std::string_view dtype) {
  return std::ranges::find(kWords, dtype, [](const auto& entry) { return entry.first; });
}

std::string dtype_word(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF32:
    case DType::kF64:
      return "float32";
    default:
      return {};
  }
}

/// Dtype of the first tensor by name that has one of the three. Source: transformers 5.17,
/// `get_state_dict_dtype`.
std::string first_dtype(const ModelDir& model_dir) {
  for (const std::string& name : model_dir.tensor_names())
    if (std::string word = dtype_word(model_dir.tensor(name).dtype); !word.empty()) return word;
  return "float32";
}

/// To which all can be cast without loss. Source: vLLM 0.32, `common_broadcastable_dtype`.
std::string widest_dtype(const ModelDir& model_dir) {
  std::set<std::string> words;
  for (const std::string& name : model_dir.tensor_names())
    words.insert(dtype_word(model_dir.tensor(name).dtype));
  words.erase("");
  if (words.empty() || words.contains("float32")) return "float32";
  return *words.begin();
}

}  // namespace

bool is_dtype_of_torch(std::string_view word) {
  return word_of(word) != kWords.end();
}

std::string run_dtype(const RunDtype& rules, const ModelDir& model_dir, const ModelConfig& config,
                      std::string_view model_type) {
  const auto word = word_of(config.dtype);
  std::string dtype(word == kWords.end() ? config.dtype : word->second);
  if (dtype.empty()) dtype = rules.widest ? widest_dtype(model_dir) : first_dtype(model_dir);
  const bool refuses_half =
      dtype == "float16" &&
      std::ranges::find(rules.refuse_float16, model_type) != rules.refuse_float16.end();
  return refuses_half || ((dtype == "float32" || dtype == "float64") && !rules.takes_float32)
             ? "bfloat16"
             : dtype;
}

namespace {

/// Whether a checkpoint may have codes at all; most that are verified have none.
bool may_hold_codes(const ModelDir& model_dir) {
  for (const SafetensorsFile& shard : model_dir.shards())
    for (const TensorView& tensor : shard.tensors())
      if (tensor.shape.rank() > 1 && !is_float(tensor.dtype)) return true;
  return false;
}

}  // namespace

DescribedWeights read_described_weights(const ModelDir& model_dir, const ModelConfig& config) {
  DescribedWeights described;
  try {
    QuantizationConfig source = read_quantization_config(model_dir);
    source.warnings = &described.warnings;
    read_module_schemes(source);
    if (!may_hold_codes(model_dir)) return described;
    const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, config);
    for (const std::string& name : quantization.undescribed) {
      std::ostringstream text;
      text << name << " (" << model_dir.tensor(name).dtype << ")";
      described.undescribed.push_back(text.str());
    }
    if (described.undescribed.empty())
      described.problems = Weights::account(model_dir, config, &quantization).problems;
  } catch (const UnknownKey& error) {
    described.unknown_key = error.message();
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return described;
  }
  return described;
}

}  // namespace kvcal
