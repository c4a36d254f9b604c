#include "sweep/sweep_file.h"

#include <algorithm>
#include <array>

#include "core/file.h"
#include "core/folder.h"
#include "core/number.h"
#include "core/text.h"
#include "datasets/dataset.h"
#include "datasets/named_dataset.h"
#include "hub/hub_id.h"
#include "recipe/fields.h"
#include "recipe/presets.h"
#include "recipe/recipe.h"
#include "sweep/results.h"

namespace kvcal {
namespace {

constexpr YamlLimits kLimits{.what = "sweep"};

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// Checks the name of a model, recipe or scale, which stands in ids, command lines and tables.
void check_name(const YamlNode& node, const std::string& path) {
  constexpr size_t kMostBytes = 100;
  if (node.text.empty() || node.text.size() > kMostBytes ||
      !std::ranges::all_of(node.text, is_name_char))
    fail_at(node, path, ": found ", describe(node), " as a name, expected 1 to ", kMostBytes,
            " letters, digits and . _ -");
}

/// The last part of a path as a name; other characters are '-'.
std::string name_from(const fs::path& path) {
  std::string name = shortened(fs::absolute(path / "")).parent_path().filename().string();
  std::ranges::replace_if(
      name, [](char c) { return !is_name_char(c); }, '-');
  return name;
}

/// A sweep while its file is read.
struct Draft {
  fs::path folder;
  SweepFile sweep = {};
  std::optional<Field> grids = {};  ///< read last: they name what other keys list
  SweepGrid grid = {};              ///< while its map is read
};

fs::path resolved(const Field& field, const fs::path& folder) {
  return shortened(folder / read_string(field));
}

/// The path of a model or data set seen from the folder. Where nothing is there, and the text is an
/// id of the hub, the id as it is.
fs::path input_path(const Field& field, const fs::path& folder, HubRepo repo) {
  const fs::path path = resolved(field, folder);
  const std::string text = read_string(field);
  return !is_there(path) && parse_hub_id(text, repo) ? fs::path(text) : path;
}

/// The value of parse(), whose error gets the field's place.
template <class Parse>
auto at_place(const Field& field, const Parse& parse) {
  return in_context(place_of(field.value) + field.path, parse);
}

/// An item of a list.
Field item_field(const Field& list, size_t index) {
  const YamlNode& item = list.value.items[index];
  return {list.path + "[" + std::to_string(index) + "]", item, item};
}

/// The value of a list's item: PATH, or NAME: VALUE.
struct Item {
  std::string name;  ///< empty: not given
  Field value;
};

Item item_of(const Field& list, size_t index) {
  const Field item = item_field(list, index);
  const YamlNode& node = item.value;
  if (node.kind != YamlNode::Kind::kMap) return {"", item};
  if (node.entries.size() != 1)
    fail_at(node, item.path, ": found a map of ", node.entries.size(),
            " keys, expected a path, or one name with what it stands for");
  const auto& [key, value] = node.entries[0];
  check_name(key, item.path);
  return {key.text, Field{item.path + "." + key.text, key, value}};
}

void check_list(const Field& field, std::string_view what) {
  constexpr size_t kMostItems = 1000;
  if (field.value.kind != YamlNode::Kind::kList || field.value.items.empty() ||
      field.value.items.size() > kMostItems)
    fail_found(field, "a list of 1 to ", kMostItems, " ", what);
}

template <class Named>
void add_named(const Item& item, Named named, std::vector<Named>& list) {
  if (std::ranges::find(list, named.name, &Named::name) != list.end())
    fail_field(item.value, "the name '", named.name,
               "' is taken; give another one, as in {other: ", describe(item.value.value), "}");
  list.push_back(std::move(named));
}

void read_models(const Field& field, Draft& draft) {
  check_list(field, "model folders");
  for (size_t i = 0; i < field.value.items.size(); ++i) {
    const Item item = item_of(field, i);
    const fs::path path = input_path(item.value, draft.folder, HubRepo::kModel);
    const auto id = parse_hub_id(path.string(), HubRepo::kModel);
    const std::string name =
        item.name.empty() ? name_from(id ? fs::path(id->name) : path) : item.name;
    add_named(item, SweepModel{.name = name, .path = path}, draft.sweep.models);
  }
}

SweepRecipe recipe_of(const Item& item, const fs::path& folder) {
  const Field& field = item.value;
  if (field.value.kind != YamlNode::Kind::kMap) {
    const fs::path path = recipe_seen_from(folder, read_string(field));
    Recipe recipe = at_place(field, [&] { return read_recipe(path); });
    return {item.name.empty() ? name_from(fs::path(path).replace_extension()) : item.name,
            std::move(recipe)};
  }
  Recipe recipe = in_context(field.path, [&] { return read_recipe_tree(field.value); });
  recipe.source = to_yaml(recipe);
  return {item.name, std::move(recipe)};
}

void read_recipes(const Field& field, Draft& draft) {
  check_list(field, "recipes");
  for (size_t i = 0; i < field.value.items.size(); ++i) {
    const Item item = item_of(field, i);
    add_named(item, recipe_of(item, draft.folder), draft.sweep.recipes);
  }
}

int64_t read_count(const Field& field, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const int64_t value = read_int(field);
  if (value < least || value > kMost)
    fail_field(field, "found ", value, ", expected ", least, " to ", kMost);
  return value;
}

/// A section that names a data set, relative to the sweep's folder.
template <class Section>
struct SectionDraft {
  fs::path folder;
  Section section;
};

template <class Section>
void read_dataset(const Field& field, SectionDraft<Section>& draft) {
  const std::string text = read_string(field);
  const bool is_name = dataset_seen_from(draft.folder, text) == text;
  const fs::path path =
      is_name ? fs::path(text) : input_path(field, draft.folder, HubRepo::kDataset);
  // A folder's name without the slash behind it, by which results call it.
  draft.section.dataset = path.has_filename() ? path : path.parent_path();
}

/// The row of a number of a section, from kLeast on.
template <class Section, auto kNumber, int64_t kLeast>
constexpr FieldRow<SectionDraft<Section>> count_row(std::string_view name) {
  return {name, [](const Field& field, SectionDraft<Section>& draft) {
            draft.section.*kNumber = read_count(field, kLeast);
          }};
}

/// A value that an option of the command line takes as text.
template <class Parse>
auto read_as_option(const Field& field, const Parse& parse) {
  if (field.value.kind != YamlNode::Kind::kScalar)
    fail_field(field, "found ", describe(field.value), ", expected one value");
  return at_place(field, [&] { return parse(field.value.text); });
}

size_t parse_record_bytes(const std::string& text) {
  const uint64_t size = parse_byte_size(text);
  if (size == 0) fail("0 is no limit, expected a size like 8MiB");
  return size;
}

template <class Section, size_t kColumn>
constexpr FieldRow<SectionDraft<Section>> kColumnRow{
    kRecordColumns[kColumn].first, [](const Field& field, SectionDraft<Section>& draft) {
      draft.section.records.columns.*kRecordColumns[kColumn].second = read_string(field);
    }};

template <class Section>
constexpr FieldRow<SectionDraft<Section>> kDelimiterRow{
    "delimiter", [](const Field& field, SectionDraft<Section>& draft) {
      draft.section.records.columns.delimiter = read_as_option(field, parse_delimiter);
    }};

template <class Section>
void read_template(const Field& field, SectionDraft<Section>& draft) {
  const fs::path path = resolved(field, draft.folder);
  if (!is_there(path))
    fail_found(field, "the path of a chat template; there is no ", path.string());
  draft.section.records.chat.template_file = path.string();
}

/// The keys of a section with text: its data set, and how its records are read.
template <class Section, class Target = SectionDraft<Section>>
constexpr std::array<FieldRow<Target>, 11> kTextRows{
    {{"dataset", read_dataset<Section>},
     count_row<Section, &Section::max_seq_length, 2>("max_seq_length"),
     kColumnRow<Section, 0>,
     kColumnRow<Section, 1>,
     kColumnRow<Section, 2>,
     kColumnRow<Section, 3>,
     kDelimiterRow<Section>,
     {"max_record_bytes",
      [](const Field& field, Target& draft) {
        draft.section.records.max_bytes = read_as_option(field, parse_record_bytes);
      }},
     {"skip_bad_records",
      [](const Field& field, Target& draft) {
        draft.section.records.skip = read_as_option(field, parse_skip_limit);
      }},
     {"chat_template", read_template<Section>},
     {"chat_template_kwargs", [](const Field& field, Target& draft) {
        check_map(field);
        draft.section.records.chat.variables = read_json(field);
      }}}};

template <class Section>
Section read_section(const Field& field, std::span<const FieldRow<SectionDraft<Section>>> rows,
                     const fs::path& folder) {
  SectionDraft<Section> section{folder, {}};
  read_fields(field, rows, section);
  if (section.section.dataset.empty())
    fail_field(field, "lacks the key 'dataset', expected the path of a data set");
  return section.section;
}

void read_evaluation(const Field& field, Draft& draft) {
  using Evaluation = SweepEvaluation;
  std::vector<FieldRow<SectionDraft<Evaluation>>> rows(kTextRows<Evaluation>.begin(),
                                                       kTextRows<Evaluation>.end());
  rows.push_back(count_row<Evaluation, &Evaluation::num_sequences, 1>("num_samples"));
  rows.push_back(count_row<Evaluation, &Evaluation::stride, 1>("stride"));
  draft.sweep.evaluation = read_section<Evaluation>(field, rows, draft.folder);
}

void read_gsm8k(const Field& field, Draft& draft) {
  using Gsm8k = SectionDraft<GsmOptions>;
  constexpr std::array<FieldRow<Gsm8k>, 5> kRows{
      {{"dataset", read_dataset<GsmOptions>},
       {"fewshot_dataset",
        [](const Field& path, Gsm8k& gsm8k) {
          gsm8k.section.fewshot_dataset = input_path(path, gsm8k.folder, HubRepo::kDataset);
        }},
       count_row<GsmOptions, &GsmOptions::num_fewshot, 0>("num_fewshot"),
       count_row<GsmOptions, &GsmOptions::max_gen_toks, 1>("max_gen_toks"),
       count_row<GsmOptions, &GsmOptions::limit, 1>("limit")}};
  draft.sweep.gsm8k = read_section<GsmOptions>(field, kRows, draft.folder);
}

template <auto kAxis>
void read_axis(const Field& field, ParetoAxes& axes) {
  axes.*kAxis = at_place(field, [&] { return kCellMetrics.name_of(read_string(field)); });
}

void read_pareto(const Field& field, Draft& draft) {
  constexpr std::array<FieldRow<ParetoAxes>, 2> kRows{
      {{"x", read_axis<&ParetoAxes::x>}, {"y", read_axis<&ParetoAxes::y>}}};
  read_fields(field, std::span<const FieldRow<ParetoAxes>>(kRows), draft.sweep.pareto);
}

constexpr std::array<FieldRow<Draft>, 10> kRows{
    {{"name",
      [](const Field& field, Draft& draft) {
        draft.sweep.name = read_string(field);
        check_name(field.value, field.path);
      }},
     {"models", read_models},
     {"recipes", read_recipes},
     {"calibration",
      [](const Field& field, Draft& draft) {
        draft.sweep.calibration =
            read_section<SweepCalibration>(field, kTextRows<SweepCalibration>, draft.folder);
      }},
     {"evaluation", read_evaluation},
     {"gsm8k", read_gsm8k},
     {"grid", [](const Field& field, Draft& draft) { draft.grids.emplace(field); }},
     {"compute_dtype",
      [](const Field& field, Draft& draft) { draft.sweep.compute_dtype = read_string(field); }},
     {"keep_checkpoints",
      [](const Field& field, Draft& draft) { draft.sweep.keep_checkpoints = read_bool(field); }},
     {"pareto", read_pareto}}};

/// Limit of the combinations that a sweep expands to, whatever its file says.
constexpr uint64_t kMostCombinations = 10'000;

/// Reads every value of a dimension: a list, or one value for a list of one.
template <class Value, class Read>
void read_values(const Field& field, std::vector<Value>& values, const Read& read,
                 bool may_be_empty = false) {
  values.clear();
  if (field.value.kind != YamlNode::Kind::kList) {
    values.push_back(read(field));
    return;
  }
  for (size_t i = 0; i < field.value.items.size(); ++i)
    values.push_back(read(item_field(field, i)));
  if (values.empty() && !may_be_empty)
    fail_field(field, "found an empty list, expected one value or more");
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

void read_grid_recipes(const Field& field, Draft& draft) {
  const auto read = [&](const Field& one) -> std::optional<size_t> {
    if (is_null(one)) return std::nullopt;
    return index_of(one, draft.sweep.recipes);
  };
  read_values(field, draft.grid.recipes, read, true);
  // No recipe is one choice: the weights as they are.
  if (draft.grid.recipes.empty()) draft.grid.recipes.emplace_back(std::nullopt);
}

void read_kv_cache_dtypes(const Field& field, Draft& draft) {
  read_values(field, draft.grid.kv_cache_dtypes, [](const Field& one) -> std::optional<CacheType> {
    const std::string name = read_string(one);
    if (name == "auto") return std::nullopt;
    return at_place(one, [&] { return parse_cache_type(name); });
  });
}

constexpr std::pair<std::string_view, ScaleSource::Kind> kSources[] = {
    {"calibrated", ScaleSource::Kind::kCalibrated},
    {"unit", ScaleSource::Kind::kUnit},
    {"checkpoint", ScaleSource::Kind::kCheckpoint}};

ScaleSource scale_source_of(const Field& field, const fs::path& folder) {
  const std::string text = read_string(field);
  for (const auto& [name, kind] : kSources)
    if (text == name) return {.kind = kind, .name = text};
  fs::path path = shortened(folder / text);
  if (!path.has_filename()) path = path.parent_path();
  if (!is_there(path))
    fail_found(field, "calibrated, unit, checkpoint, or the path of scales; there is no ",
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

void read_num_samples(const Field& field, Draft& draft) {
  static constexpr int64_t kMost = int64_t{1} << 40;
  read_values(field, draft.grid.num_calibration_samples, [](const Field& one) {
    const int64_t count = read_int(one);
    if (count < 1 || count > kMost) fail_field(one, "found ", count, ", expected 1 to ", kMost);
    return count;
  });
}

void read_seeds(const Field& field, Draft& draft) {
  read_values(field, draft.grid.shuffle_seeds, [](const Field& one) -> std::optional<uint64_t> {
    if (is_null(one)) return std::nullopt;
    const int64_t seed = read_int(one);
    if (seed < 0) fail_field(one, "found ", seed, ", expected null or a number from 0 on");
    return static_cast<uint64_t>(seed);
  });
}

constexpr std::array<FieldRow<Draft>, 7> kGridRows{
    {{"models",
      [](const Field& field, Draft& draft) {
        read_values(field, draft.grid.models,
                    [&](const Field& one) { return index_of(one, draft.sweep.models); });
      }},
     {"recipes", read_grid_recipes},
     {"kv_cache_dtypes", read_kv_cache_dtypes},
     {"scales",
      [](const Field& field, Draft& draft) {
        read_values(field, draft.grid.scales, [&](const Field& one) {
          return index_of_source(one, scale_source_of(one, draft.folder), draft.sweep);
        });
      }},
     {"kv_forward",
      [](const Field& field, Draft& draft) {
        read_values(field, draft.grid.kv_forward, [](const Field& one) {
          std::string name = read_string(one);
          if (name != "quantized" && name != "exact") fail_found(one, "quantized or exact");
          return name;
        });
      }},
     {"num_samples", read_num_samples, "num_calibration_samples"},
     {"shuffle_seeds", read_seeds}}};

SweepGrid read_grid(const Field& field, Draft& draft) {
  SweepGrid& grid = draft.grid = {};
  for (size_t i = 0; i < draft.sweep.models.size(); ++i) grid.models.push_back(i);
  for (size_t i = 0; i < draft.sweep.recipes.size(); ++i) grid.recipes.emplace_back(i);
  if (grid.recipes.empty()) grid.recipes.emplace_back(std::nullopt);
  read_fields(field, std::span<const FieldRow<Draft>>(kGridRows), draft);
  if (grid.scales.empty())
    grid.scales.push_back(index_of_source(
        field, {.kind = ScaleSource::Kind::kCalibrated, .name = "calibrated"}, draft.sweep));
  return std::move(grid);
}

uint64_t num_combinations(const SweepGrid& grid) {
  uint64_t product = 1;
  for (const size_t count :
       {grid.models.size(), grid.recipes.size(), grid.kv_cache_dtypes.size(), grid.scales.size(),
        grid.kv_forward.size(), grid.num_calibration_samples.size(), grid.shuffle_seeds.size()})
    product = checked_mul(product, count);
  return product;
}

/// The value of `grid`, one map of dimensions or a list of them, into a sweep whose models and
/// recipes are read; sources of scales are added to it. A dimension that a grid leaves out takes
/// its default, which of models and recipes is all.
void read_grids(const Field& field, Draft& draft) {
  std::vector<SweepGrid>& grids = draft.sweep.grids;
  uint64_t combinations = 0;
  const auto add = [&](const Field& one) {
    grids.push_back(read_grid(one, draft));
    combinations = checked_add(combinations, num_combinations(grids.back()));
    if (combinations > kMostCombinations)
      fail_field(one, "makes more than ", kMostCombinations, " combinations in all");
  };
  if (field.value.kind != YamlNode::Kind::kList) return add(field);
  for (size_t i = 0; i < field.value.items.size(); ++i) add(item_field(field, i));
  if (grids.empty()) fail_field(field, "found an empty list, expected a grid or more");
}

}  // namespace

SweepFile parse_sweep(std::string_view text, const fs::path& folder) {
  const YamlNode document = parse_yaml(text, kLimits);
  if (document.kind == YamlNode::Kind::kNull) fail("the sweep is empty, expected a map of keys");
  Draft draft{.folder = folder};
  read_fields(Field{"sweep", document, document}, std::span<const FieldRow<Draft>>(kRows), draft);
  for (const char* key : {"name", "models", "evaluation", "grid"})
    if (!document.find(key)) fail_at(document, "sweep: lacks the key '", key, "'");
  read_grids(*draft.grids, draft);
  return std::move(draft.sweep);
}

SweepFile read_sweep(const fs::path& path) {
  const std::string text = read_text(path, kLimits.max_bytes);
  return in_context(path.string(),
                    [&] { return parse_sweep(text, fs::absolute(path).parent_path()); });
}

}  // namespace kvcal
