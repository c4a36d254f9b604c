#include "sweep/sweep_file.h"

#include <algorithm>
#include <array>

#include "core/byte_size.h"
#include "core/file.h"
#include "core/folder.h"
#include "datasets/dataset.h"
#include "datasets/named_dataset.h"
#include "hub/hub_id.h"
#include "recipe/fields.h"
#include "recipe/grammar.h"
#include "recipe/named_recipe.h"
#include "sweep/grid_fields.h"
#include "sweep/results.h"

namespace kvcal {
namespace {

constexpr YamlLimits kLimits{.what = "sweep"};

/// A sweep while its file is read.
struct Draft {
  fs::path folder;
  SweepFile sweep;
  std::optional<Field> grid;  ///< read last: it names what other keys list
};

fs::path resolved(const Field& field, const fs::path& folder) {
  return (folder / read_string(field)).lexically_normal();
}

/// The path of a model or data set seen from the folder. Where nothing is there, and the text is an
/// id of the hub, the id as it is.
fs::path input_path(const Field& field, const fs::path& folder, HubRepo repo) {
  const fs::path path = resolved(field, folder);
  const std::string text = read_string(field);
  return !is_there(path) && parse_hub_id(text, repo) ? fs::path(text) : path;
}

/// The value of a list's item: PATH, or NAME: VALUE.
struct Item {
  std::string name;  ///< empty: not given
  Field value;
};

Item item_of(const Field& list, size_t index) {
  const std::string path = list.path + "[" + std::to_string(index) + "]";
  const YamlNode& node = list.value.items[index];
  if (node.kind != YamlNode::Kind::kMap) return {"", Field{path, node, node}};
  if (node.entries.size() != 1)
    fail_at(node, path, ": found a map of ", node.entries.size(),
            " keys, expected a path, or one name with what it stands for");
  const auto& [key, value] = node.entries[0];
  check_name(key, path);
  return {key.text, Field{path + "." + key.text, key, value}};
}

void check_list(const Field& field, std::string_view what) {
  constexpr size_t kMostItems = 1000;
  if (field.value.kind != YamlNode::Kind::kList || field.value.items.empty() ||
      field.value.items.size() > kMostItems)
    fail_field(field, "found ", describe(field.value), ", expected a list of 1 to ", kMostItems,
               " ", what);
}

template <class Named>
void add_named(const Item& item, Named named, std::vector<Named>& list) {
  if (std::ranges::find(list, named.name, &Named::name) != list.end())
    fail_field(item.value, "the name '", named.name,
               "' is taken; give another one, as in {other: ", describe(item.value.value), "}");
  list.push_back(std::move(named));
}

void read_name(const Field& field, Draft& draft) {
  draft.sweep.name = read_string(field);
  check_name(field.value, field.path);
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
    Recipe recipe =
        in_context(place_of(field.value) + field.path, [&] { return read_recipe(path); });
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

void read_keep_checkpoints(const Field& field, Draft& draft) {
  draft.sweep.keep_checkpoints = read_bool(field);
}

void read_compute_dtype(const Field& field, Draft& draft) {
  draft.sweep.compute_dtype = read_string(field);
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

void read_dataset(const Field& field, const fs::path& folder, fs::path& dataset) {
  const std::string text = read_string(field);
  const bool is_name = dataset_seen_from(folder, text) == text;
  const fs::path path = is_name ? fs::path(text) : input_path(field, folder, HubRepo::kDataset);
  // A folder's name without the slash behind it, by which results call it.
  dataset = path.has_filename() ? path : path.parent_path();
}
template <class Section>
constexpr FieldRow<SectionDraft<Section>> kDatasetRow{
    "dataset", [](const Field& field, SectionDraft<Section>& draft) {
      read_dataset(field, draft.folder, draft.section.dataset);
    }};

void read_template(const Field& field, const fs::path& folder, ChatOptions& chat) {
  const fs::path path = resolved(field, folder);
  if (!is_there(path))
    fail_field(field, "found ", describe(field.value),
               ", expected the path of a chat template; there is no ", path.string());
  chat.template_file = path.string();
}

/// A value that an option of the command line takes as text.
template <class Parse>
auto read_as_option(const Field& field, const Parse& parse) {
  if (field.value.kind != YamlNode::Kind::kScalar)
    fail_field(field, "found ", describe(field.value), ", expected one value");
  return in_context(place_of(field.value) + field.path, [&] { return parse(field.value.text); });
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

/// The keys of a section with text: its data set, and how its records are read.
template <class Section>
constexpr std::array<FieldRow<SectionDraft<Section>>, 10> kTextRows{
    kDatasetRow<Section>,
    FieldRow<SectionDraft<Section>>{"max_seq_length",
                                    [](const Field& field, SectionDraft<Section>& draft) {
                                      draft.section.max_seq_length = read_count(field, 2);
                                    }},
    kColumnRow<Section, 0>,
    kColumnRow<Section, 1>,
    kColumnRow<Section, 2>,
    kColumnRow<Section, 3>,
    FieldRow<SectionDraft<Section>>{"max_record_bytes",
                                    [](const Field& field, SectionDraft<Section>& draft) {
                                      draft.section.records.max_bytes =
                                          read_as_option(field, parse_record_bytes);
                                    }},
    FieldRow<SectionDraft<Section>>{"skip_bad_records",
                                    [](const Field& field, SectionDraft<Section>& draft) {
                                      draft.section.records.skip =
                                          read_as_option(field, parse_skip_limit);
                                    }},
    FieldRow<SectionDraft<Section>>{"chat_template",
                                    [](const Field& field, SectionDraft<Section>& draft) {
                                      read_template(field, draft.folder,
                                                    draft.section.records.chat);
                                    }},
    FieldRow<SectionDraft<Section>>{"chat_template_kwargs",
                                    [](const Field& field, SectionDraft<Section>& draft) {
                                      check_map(field);
                                      draft.section.records.chat.variables = read_json(field);
                                    }}};

template <class Section>
Section read_section(const Field& field, std::span<const FieldRow<SectionDraft<Section>>> rows,
                     const fs::path& folder) {
  SectionDraft<Section> section{folder, {}};
  read_fields(field, rows, section);
  if (section.section.dataset.empty())
    fail_field(field, "lacks the key 'dataset', expected the path of a data set");
  return section.section;
}

void read_calibration(const Field& field, Draft& draft) {
  draft.sweep.calibration =
      read_section<SweepCalibration>(field, kTextRows<SweepCalibration>, draft.folder);
}

void read_evaluation(const Field& field, Draft& draft) {
  using Rows = SectionDraft<SweepEvaluation>;
  constexpr std::array<FieldRow<Rows>, 2> kOwn{
      FieldRow<Rows>{
          "num_samples",
          [](const Field& one, Rows& rows) { rows.section.num_samples = read_count(one, 1); }},
      FieldRow<Rows>{"stride", [](const Field& one, Rows& rows) {
                       rows.section.stride = read_count(one, 1);
                     }}};
  std::vector<FieldRow<Rows>> rows(kTextRows<SweepEvaluation>.begin(),
                                   kTextRows<SweepEvaluation>.end());
  rows.insert(rows.end(), kOwn.begin(), kOwn.end());
  draft.sweep.evaluation = read_section<SweepEvaluation>(field, rows, draft.folder);
}

void read_gsm8k(const Field& field, Draft& draft) {
  using Rows = SectionDraft<SweepGsm8k>;
  constexpr std::array<FieldRow<Rows>, 5> kRows{
      kDatasetRow<SweepGsm8k>,
      FieldRow<Rows>{"fewshot_dataset",
                     [](const Field& one, Rows& rows) {
                       rows.section.fewshot_dataset =
                           input_path(one, rows.folder, HubRepo::kDataset);
                     }},
      FieldRow<Rows>{
          "num_fewshot",
          [](const Field& one, Rows& rows) { rows.section.num_fewshot = read_count(one, 0); }},
      FieldRow<Rows>{
          "max_gen_toks",
          [](const Field& one, Rows& rows) { rows.section.max_gen_toks = read_count(one, 1); }},
      FieldRow<Rows>{
          "limit", [](const Field& one, Rows& rows) { rows.section.limit = read_count(one, 1); }}};
  draft.sweep.gsm8k = read_section<SweepGsm8k>(field, kRows, draft.folder);
}

void read_pareto(const Field& field, Draft& draft) {
  constexpr std::array<FieldRow<ParetoAxes>, 2> kRows{
      FieldRow<ParetoAxes>{"x",
                           [](const Field& one, ParetoAxes& axes) {
                             axes.x = in_context(place_of(one.value) + one.path,
                                                 [&] { return metric(read_string(one)).name; });
                           }},
      FieldRow<ParetoAxes>{"y", [](const Field& one, ParetoAxes& axes) {
                             axes.y = in_context(place_of(one.value) + one.path,
                                                 [&] { return metric(read_string(one)).name; });
                           }}};
  read_fields(field, std::span<const FieldRow<ParetoAxes>>(kRows), draft.sweep.pareto);
}

void keep_grid(const Field& field, Draft& draft) {
  draft.grid.emplace(field);
}

constexpr std::array<FieldRow<Draft>, 10> kRows{{{"name", read_name},
                                                 {"models", read_models},
                                                 {"recipes", read_recipes},
                                                 {"calibration", read_calibration},
                                                 {"evaluation", read_evaluation},
                                                 {"gsm8k", read_gsm8k},
                                                 {"grid", keep_grid},
                                                 {"compute_dtype", read_compute_dtype},
                                                 {"keep_checkpoints", read_keep_checkpoints},
                                                 {"pareto", read_pareto}}};

}  // namespace

SweepFile parse_sweep(std::string_view text, const fs::path& folder) {
  const YamlNode document = parse_yaml(text, kLimits);
  if (document.kind == YamlNode::Kind::kNull) fail("the sweep is empty, expected a map of keys");
  Draft draft{.folder = folder, .sweep = {}, .grid = {}};
  read_fields(Field{"sweep", document, document}, std::span<const FieldRow<Draft>>(kRows), draft);
  for (const char* key : {"name", "models", "evaluation", "grid"})
    if (!document.find(key)) fail_at(document, "sweep: lacks the key '", key, "'");
  read_grids(*draft.grid, folder, draft.sweep);
  return std::move(draft.sweep);
}

SweepFile read_sweep(const fs::path& path) {
  const std::string text = read_text(path, kLimits.max_bytes);
  return in_context(path.string(),
                    [&] { return parse_sweep(text, fs::absolute(path).parent_path()); });
}

}  // namespace kvcal
