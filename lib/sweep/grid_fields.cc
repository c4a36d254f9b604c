#include "sweep/grid_fields.h"

#include <algorithm>
#include <array>

#include "core/checked.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/join.h"

namespace kvcal {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// Limit of the combinations that a sweep expands to, whatever its file says.
constexpr uint64_t kMostCombinations = 10'000;

/// A grid while its map is read.
struct GridDraft {
  const fs::path& folder;
  SweepFile& sweep;
  SweepGrid grid;
};

/// Reads every value of a dimension: a list, or one value for a list of one.
template <class Value, class Read>
void read_values(const Field& field, std::vector<Value>& values, const Read& read) {
  values.clear();
  if (field.value.kind != YamlNode::Kind::kList) {
    values.push_back(read(field));
    return;
  }
  for (size_t i = 0; i < field.value.items.size(); ++i) {
    const YamlNode& item = field.value.items[i];
    values.push_back(read(Field{field.path + "[" + std::to_string(i) + "]", item, item}));
  }
}

void check_not_empty(const Field& field, size_t count) {
  if (count == 0) fail_field(field, "found an empty list, expected one value or more");
}

/// The index of what list calls by that name.
template <class Named>
size_t index_of(const Field& field, const std::vector<Named>& list) {
  const std::string name = read_string(field);
  const auto found = std::ranges::find(list, name, &Named::name);
  if (found != list.end()) return static_cast<size_t>(found - list.begin());
  std::vector<std::string> names;
  for (const Named& one : list) names.push_back(one.name);
  fail_field(field, "found ", describe(field.value), ", which the sweep does not list",
             did_you_mean(name, names), "; listed are ",
             names.empty() ? "none" : join(names, ", "));
}

void read_models(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.models,
              [&](const Field& one) { return index_of(one, draft.sweep.models); });
  check_not_empty(field, draft.grid.models.size());
}

void read_recipes(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.recipes, [&](const Field& one) -> std::optional<size_t> {
    if (is_null(one)) return std::nullopt;
    return index_of(one, draft.sweep.recipes);
  });
  // No recipe is one choice: the weights as they are.
  if (draft.grid.recipes.empty()) draft.grid.recipes.emplace_back(std::nullopt);
}

void read_kv_cache_dtypes(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.kv_cache_dtypes, [](const Field& one) -> std::optional<CacheType> {
    const std::string name = read_string(one);
    if (name == "auto") return std::nullopt;
    return in_context(place_of(one.value) + one.path, [&] { return parse_cache_type(name); });
  });
  check_not_empty(field, draft.grid.kv_cache_dtypes.size());
}

constexpr std::pair<std::string_view, ScaleSource::Kind> kSources[] = {
    {"calibrated", ScaleSource::Kind::kCalibrated},
    {"unit", ScaleSource::Kind::kUnit},
    {"checkpoint", ScaleSource::Kind::kCheckpoint}};

ScaleSource scale_source_of(const Field& field, const fs::path& folder) {
  const std::string text = read_string(field);
  for (const auto& [name, kind] : kSources)
    if (text == name) return {.kind = kind, .name = text, .path = {}};
  fs::path path = (folder / text).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (!is_there(path))
    fail_field(field, "found ", describe(field.value),
               ", expected calibrated, unit, checkpoint, or the path of scales; there is no ",
               path.string());
  // What follows a dot in a folder's name is no ending.
  const fs::path named = is_folder(path) ? path : fs::path(path).replace_extension();
  return {.kind = ScaleSource::Kind::kFile, .name = name_from(named), .path = path};
}

/// The source's index in the sweep's list, where each is once.
size_t index_of_source(const Field& field, ScaleSource source, SweepFile& sweep) {
  std::vector<ScaleSource>& all = sweep.scales;
  const auto found = std::ranges::find(all, source.name, &ScaleSource::name);
  if (found == all.end()) {
    all.push_back(std::move(source));
    return all.size() - 1;
  }
  if (found->kind != source.kind || found->path != source.path)
    fail_field(field, "two sources of scales are called '", source.name,
               "': ", found->path.string(), " and ", source.path.string(), "; rename one");
  return static_cast<size_t>(found - all.begin());
}

void read_scales(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.scales, [&](const Field& one) {
    return index_of_source(one, scale_source_of(one, draft.folder), draft.sweep);
  });
  check_not_empty(field, draft.grid.scales.size());
}

void read_kv_forward(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.kv_forward, [](const Field& one) {
    std::string name = read_string(one);
    if (name != "quantized" && name != "exact")
      fail_field(one, "found ", describe(one.value), ", expected quantized or exact");
    return name;
  });
  check_not_empty(field, draft.grid.kv_forward.size());
}

void read_num_samples(const Field& field, GridDraft& draft) {
  static constexpr int64_t kMost = int64_t{1} << 40;
  read_values(field, draft.grid.num_calibration_samples, [](const Field& one) {
    const int64_t count = read_int(one);
    if (count < 1 || count > kMost) fail_field(one, "found ", count, ", expected 1 to ", kMost);
    return count;
  });
  check_not_empty(field, draft.grid.num_calibration_samples.size());
}

void read_seeds(const Field& field, GridDraft& draft) {
  read_values(field, draft.grid.shuffle_seeds, [](const Field& one) -> std::optional<uint64_t> {
    if (is_null(one)) return std::nullopt;
    const int64_t seed = read_int(one);
    if (seed < 0) fail_field(one, "found ", seed, ", expected null or a number from 0 on");
    return static_cast<uint64_t>(seed);
  });
  check_not_empty(field, draft.grid.shuffle_seeds.size());
}

constexpr std::array<FieldRow<GridDraft>, 7> kRows{
    {{"models", read_models},
     {"recipes", read_recipes},
     {"kv_cache_dtypes", read_kv_cache_dtypes},
     {"scales", read_scales},
     {"kv_forward", read_kv_forward},
     {"num_samples", read_num_samples, "num_calibration_samples"},
     {"shuffle_seeds", read_seeds}}};

SweepGrid default_grid(const SweepFile& sweep) {
  SweepGrid grid{.models = {},
                 .recipes = {},
                 .kv_cache_dtypes = {KvDType::kFp8E4m3},
                 .scales = {},
                 .kv_forward = {"quantized"},
                 .num_calibration_samples = {512},
                 .shuffle_seeds = {std::nullopt}};
  for (size_t i = 0; i < sweep.models.size(); ++i) grid.models.push_back(i);
  for (size_t i = 0; i < sweep.recipes.size(); ++i) grid.recipes.emplace_back(i);
  if (grid.recipes.empty()) grid.recipes.emplace_back(std::nullopt);
  return grid;
}

SweepGrid read_grid(const Field& field, const fs::path& folder, SweepFile& sweep) {
  GridDraft draft{.folder = folder, .sweep = sweep, .grid = default_grid(sweep)};
  read_fields(field, std::span<const FieldRow<GridDraft>>(kRows), draft);
  if (draft.grid.scales.empty())
    draft.grid.scales.push_back(index_of_source(
        field, {.kind = ScaleSource::Kind::kCalibrated, .name = "calibrated", .path = {}}, sweep));
  return std::move(draft.grid);
}

uint64_t num_combinations(const SweepGrid& grid) {
  uint64_t product = 1;
  for (const size_t count :
       {grid.models.size(), grid.recipes.size(), grid.kv_cache_dtypes.size(), grid.scales.size(),
        grid.kv_forward.size(), grid.num_calibration_samples.size(), grid.shuffle_seeds.size()})
    product = checked_mul(product, count);
  return product;
}

}  // namespace

void read_grids(const Field& field, const fs::path& folder, SweepFile& sweep) {
  uint64_t combinations = 0;
  const auto add = [&](const Field& one) {
    sweep.grids.push_back(read_grid(one, folder, sweep));
    combinations = checked_add(combinations, num_combinations(sweep.grids.back()));
    if (combinations > kMostCombinations)
      fail_field(one, "makes more than ", kMostCombinations, " combinations in all");
  };
  if (field.value.kind != YamlNode::Kind::kList) return add(field);
  for (size_t i = 0; i < field.value.items.size(); ++i) {
    const YamlNode& item = field.value.items[i];
    add(Field{field.path + "[" + std::to_string(i) + "]", item, item});
  }
  if (sweep.grids.empty()) fail_field(field, "found an empty list, expected a grid or more");
}

void check_name(const YamlNode& node, const std::string& path) {
  constexpr size_t kMostBytes = 100;
  if (node.text.empty() || node.text.size() > kMostBytes ||
      !std::ranges::all_of(node.text, is_name_char))
    fail_at(node, path, ": found ", describe(node), " as a name, expected 1 to ", kMostBytes,
            " letters, digits and . _ -");
}

std::string name_from(const fs::path& path) {
  std::string name = fs::absolute(path / "").lexically_normal().parent_path().filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !is_name_char(c); }, '-');
  return name;
}

}  // namespace kvcal
