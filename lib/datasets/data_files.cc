#include "datasets/data_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/links.h"
#include "core/text.h"
#include "datasets/dataset.h"
#include "datasets/dataset_reader.h"

namespace kvcal {
namespace {

constexpr std::string_view kPatternCharacters = "*?[";
/// Beginnings of names, in lower case, of what lies beside data and is none.
constexpr std::array kBeside{"readme",       "license",       "licence",
                             "notice",       "citation",      "changelog",
                             "dataset_info", "dataset_infos", "dataset_dict"};
/// Names of splits where they are a file's whole name.
constexpr std::array kSplits{"train", "training", "test",  "testing",   "dev",
                             "eval",  "val",      "valid", "validation"};

bool is_beside(const std::string& name) {
  return name.starts_with('.') || std::ranges::any_of(kBeside, [&](std::string_view beginning) {
           return ascii_lower(name).starts_with(beginning) &&
                  (name.size() == beginning.size() || name[beginning.size()] == '.');
         });
}

void check_kind(const fs::path& file) {
  if (is_folder(file))
    fail(file.string(), ": is a folder among data files; give the folder or files in it");
  const std::string extension = data_extension(file, /*is_packed=*/true);
  std::vector<std::string_view> known;
  for (const auto& [name, reader] : dataset_readers().rows())
    known.insert(known.end(), reader.extensions.begin(), reader.extensions.end());
  if (std::ranges::find(known, extension) != known.end()) return;
  fail(file.string(), ": is no data file by its name, expected one of ", join(known, ", "),
       ", each with .gz or .zst where it is packed; leave it out with a pattern such as '",
       (file.parent_path() / "*.jsonl").string(), "'");
}

/// A name taken apart: "train-00001-of-00003.parquet".
struct Shard {
  std::string split;  ///< empty: the name says nothing
  int64_t number = 0, count = 0;
};

std::optional<int64_t> number_of(std::string_view digits) {
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc{} || result.ptr != digits.data() + digits.size()) return std::nullopt;
  return value;
}

Shard shard_of(const fs::path& file) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  const std::string name = file.filename().string();
  const std::string stem = name.substr(0, name.find('.'));
  if (stem.size() > kTail && stem[stem.size() - kTail] == '-') {
    const std::string_view tail = std::string_view(stem).substr(stem.size() - kTail + 1);
    const auto number = number_of(tail.substr(0, kDigits));
    const auto count = number_of(tail.substr(kDigits + kOf.size()));
    if (number && count && tail.substr(kDigits, kOf.size()) == kOf)
      return {stem.substr(0, stem.size() - kTail), *number, *count};
  }
  const bool is_split = std::ranges::find(kSplits, ascii_lower(stem)) != kSplits.end();
  return {is_split ? stem : "", 0, 0};
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> files, folders;
  for (const fs::path& path : paths_in(folder)) {
    if (is_beside(path.filename().string())) continue;
    (is_folder(path) ? folders : files).push_back(path);
  }
  if (files.empty() && !folders.empty()) {
    fail(folder.string(), ": holds no data file but folders; give one of ",
         join(folders, ", ", [](const fs::path& one) { return one.string(); }));
  }
  files.insert(files.end(), folders.begin(), folders.end());
  if (files.empty()) fail(folder.string(), ": holds no data file");
  return files;
}

std::vector<fs::path> files_of_pattern(const fs::path& pattern) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &found);
  std::vector<fs::path> files;
  for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::erase_if(files, [](const fs::path& file) { return is_beside(file.filename().string()); });
  if (code != 0 && code != GLOB_NOMATCH)
    fail(pattern.string(), ": a folder of the pattern cannot be read");
  if (files.empty()) fail(pattern.string(), ": no data file matches the pattern");
  return files;
}

/// The folder before the first part with a wildcard.
fs::path fixed_part(const fs::path& pattern) {
  fs::path fixed;
  for (const fs::path& part : pattern) {
    if (part.string().find_first_of(kPatternCharacters) != std::string::npos) break;
    fixed /= part;
  }
  return fixed;
}

/// Throws Error unless every shard that a name counts is there.
void check_shards(const FileSet& set) {
  std::map<std::pair<std::string, int64_t>, std::set<int64_t>> seen;
  for (const fs::path& file : set.files)
    if (const Shard shard = shard_of(file); shard.count > 0)
      seen[{shard.split, shard.count}].insert(shard.number);
  for (const auto& [key, numbers] : seen)
    for (int64_t i = 0; i < key.second; ++i)
      if (!numbers.contains(i))
        fail(set.folder.string(), ": shard ", i, " of the ", key.second, " of '", key.first,
             "' is missing; give a pattern to read only a part of the shards");
}

void choose_split(FileSet& set, const std::optional<std::string>& wanted, bool in_folder) {
  std::set<std::string> splits;
  for (const fs::path& file : set.files)
    if (const Shard shard = shard_of(file); !shard.split.empty()) splits.insert(shard.split);
  const std::string names =
      join(splits, ", ", [](const std::string& split) { return "'" + split + "'"; });
  // A pattern says itself which files it means, unless their names say something about it.
  if (splits.empty() && !in_folder) return;
  if (wanted && !splits.contains(*wanted))
    fail(set.folder.string(), ": holds no split '", *wanted, "'",
         names.empty() ? "" : "; found are " + names);
  if (!wanted && splits.size() > 1)
    fail(set.folder.string(), ": holds several splits, ", names, "; choose one with a pattern, '",
         (set.folder / (*splits.begin() + "*")).string(), "'");
  if (wanted)
    std::erase_if(set.files, [&](const fs::path& one) { return shard_of(one).split != *wanted; });
}

}  // namespace

std::string FileSet::sha256() const {
  if (files.size() == 1) return sha256_of_file(files.front());
  Sha256 hash;
  for (const fs::path& file : files) {
    hash.update(file.lexically_relative(folder.empty() ? "." : folder).string());
    hash.update(std::string_view("\0", 1));
    hash.update(sha256_of_file(file));
    hash.update("\n");
  }
  return hash.hex();
}

bool is_pattern(const fs::path& path) {
  return path.string().find_first_of(kPatternCharacters) != std::string::npos && !is_there(path);
}

bool has_files(const fs::path& path) {
  glob_t found{};
  const bool has_some = is_pattern(path) && ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
  ::globfree(&found);
  return has_some;
}

FileSet find_data_files(const fs::path& path, const std::optional<std::string>& split) {
  const bool in_folder = is_folder(path);
  FileSet set{.folder = in_folder ? path : fixed_part(path),
              .files = in_folder ? files_of_folder(path) : files_of_pattern(path)};
  std::ranges::sort(set.files, {}, [](const fs::path& file) { return file.string(); });
  const AllowedLinks links(set.folder, "data folder");
  for (const fs::path& file : set.files) {
    throw_if_interrupted();
    links.check(file);
    check_kind(file);
  }
  if (in_folder || split) choose_split(set, split, in_folder);
  if (in_folder) check_shards(set);
  return set;
}

}  // namespace kvcal
