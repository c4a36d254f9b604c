// The folders of `datasets`: Dataset.save_to_disk and DatasetDict.save_to_disk, as of 2.0 to 5.2.

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/links.h"
#include "core/registry.h"
#include "core/text.h"
#include "datasets/data_files.h"
#include "datasets/dataset_reader.h"
#include "datasets/tables/table.h"

namespace kvcal {
namespace {

constexpr std::string_view kState = "state.json", kInfo = "dataset_info.json",
                           kSplits = "dataset_dict.json";
constexpr JsonLimits kLimits{.max_bytes = size_t{16} << 20, .max_values = 1'000'000};

Json read_object(const fs::path& path) {
  return in_context(path.string(), [&] {
    Json value = parse_json(read_text(path, kLimits.max_bytes), kLimits);
    if (!value.is_object()) fail("is ", kind_of(value), ", expected an object");
    return value;
  });
}

const Json& required_array(const Json& object, std::string_view key) {
  const Json* value = find_field(object, key);
  if (!value) fail_missing(key, "an array");
  if (!value->is_array()) fail_kind(key, "an array", *value);
  return *value;
}

/// A name of a file or folder in the data set's own folder, and no other path.
std::string plain_name(const Json& value, std::string_view key) {
  if (!value.is_string()) fail_kind(key, "a name", value);
  std::string name = value.get<std::string>();
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    fail_kind(key, "a name in the same folder", value);
  return name;
}

/// The folder of a split.
fs::path folder_of_split(const fs::path& folder, const std::optional<std::string>& wanted) {
  const Json object = read_object(folder / kSplits);
  return in_context((folder / kSplits).string(), [&] {
    std::vector<std::string> names;
    for (const Json& one : required_array(object, "splits"))
      names.push_back(plain_name(one, "splits"));
    if (names.empty()) fail("key 'splits' is an empty array, expected names");
    const std::string all =
        join(names, ", ", [&](const std::string& one) { return (folder / one).string(); });
    if (wanted && std::ranges::find(names, *wanted) == names.end())
      fail("unknown split '", *wanted, "'", did_you_mean(*wanted, names), "; found are ", all);
    if (!wanted && names.size() > 1)
      fail("the data set has ", counted(names.size(), "split"), "; give the folder of one: ", all);
    return folder / wanted.value_or(names.front());
  });
}

void check_no_indices(const Json& state) {
  // Releases before 2.0 kept a shuffled or selected order beside the rows.
  for (const std::string_view key : {"_indices_data_files", "_indices_files"}) {
    const Json* indices = find_field(state, key);
    if (indices && !indices->empty())
      fail("key '", key,
           "' says that the rows are in another order than in their files, which is not read; save "
           "the data set again after flatten_indices()");
  }
}

}  // namespace

bool is_saved_dataset(const fs::path& folder) {
  return std::ranges::any_of(std::initializer_list<std::string_view>{kState, kInfo, kSplits},
                             [&](std::string_view name) { return is_there(folder / name); });
}

FileSet find_saved_files(const fs::path& folder, const std::optional<std::string>& split) {
  const AllowedLinks links(folder, "data folder");
  for (const std::string_view name : {kState, kInfo, kSplits}) links.check(folder / name);
  if (is_there(folder / kSplits)) {
    const fs::path inner = folder_of_split(folder, split);
    links.check(inner);
    return find_saved_files(inner, std::nullopt);
  }
  for (const std::string_view name : {kState, kInfo})
    if (!is_there(folder / name))
      fail(folder.string(), ": looks like a data set that save_to_disk wrote, but ", name,
           " is missing; for its files alone give a pattern, '", (folder / "*.arrow").string(),
           "'");
  const fs::path state_path = folder / kState;
  const Json state = read_object(state_path);
  return in_context(state_path.string(), [&] {
    if (const auto saved = optional_string(state, "_split"); split && saved != split)
      fail("holds split ", saved ? "'" + *saved + "'" : "null", ", not '", *split, "'");
    check_no_indices(state);
    FileSet set{.folder = folder, .files = {}};
    for (const Json& file : required_array(state, "_data_files")) {
      if (!file.is_object()) fail_kind("_data_files", "objects with 'filename'", file);
      const Json* name = find_field(file, "filename");
      if (!name) fail_missing("filename", "a name");
      set.files.push_back(folder / plain_name(*name, "filename"));
      links.check(set.files.back());
    }
    if (set.files.empty()) fail("key '_data_files' is an empty array, the data set has no rows");
    return set;
  });
}

namespace {

std::unique_ptr<RecordSource> open_saved_records(const fs::path& path,
                                                 const RecordRequest& request) {
  FileSet set = find_saved_files(path, request.split);
  std::vector<std::unique_ptr<RecordSource>> parts;
  for (const fs::path& file : set.files)
    parts.push_back(open_table_records(file, TableFormat::kArrow, request, /*may_be_empty=*/true));
  return join_records(std::move(parts), std::move(set), path);
}

}  // namespace

DatasetReader saved_reader() {
  return {
      .open_records = open_saved_records,
      .reads_path = [](const fs::path& path) { return is_folder(path) && is_saved_dataset(path); },
      .files = [](const fs::path& path) { return find_saved_files(path, {}).files; },
      .takes_split = true};
}

}  // namespace kvcal
