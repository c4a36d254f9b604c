#include "engines/loaded_files.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <tuple>

#include "checkpoint/model_dir.h"
#include "core/folder.h"

namespace kvcal {
namespace {

/// All files in the format, also those that no engine looks for: hidden ones, and SAFETENSORS.
std::vector<std::string> safetensors_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::filesystem::path& path : paths_in(folder)) {
    std::string ending = path.extension().string();
    std::ranges::transform(ending, ending.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (ending == ".safetensors" && !is_folder(path)) names.push_back(path.filename().string());
  }
  return names;
}

/// As a pattern *.safetensors finds it.
bool is_found(const std::string& name) {
  return name.ends_with(".safetensors") && !name.starts_with('.');
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

/// Whether a comes before b where runs of digits count as numbers. Source: vLLM 0.32,
/// `_natural_sort_key`.
bool comes_first(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const uint64_t first = number(a), second = number(b);
      if (first != second) return first < second;
      continue;
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
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
  if (rules.prefers_single && contains(all, single)) {
    files.names = {single};
  } else if (rules.reads_index && is_there(index)) {
    keep_indexed(files, index);
  } else if (rules.prefers_single) {
    files.names.clear();
  }
  if (rules.counts_digits)
    std::ranges::sort(files.names, comes_first);
  else
    std::ranges::sort(files.names);
  for (const std::string& name : all)
    if (!contains(files.names, name)) files.others.push_back(name);
  return files;
}

}  // namespace kvcal
