#include "family/architecture.h"

#include <functional>
#include <map>

#include "family/tensor_tables.h"

namespace kvcal {

// One row per file of families/: <row>.cc defines <row>_lineage().
#define KVCAL_LINEAGES(ROW) \
  ROW(cohere)               \
  ROW(deepseek)             \
  ROW(dots)                 \
  ROW(ernie)                \
  ROW(exaone)               \
  ROW(gemma)                \
  ROW(glm)                  \
  ROW(gpt)                  \
  ROW(granite)              \
  ROW(hunyuan)              \
  ROW(hybrid)               \
  ROW(inkling)              \
  ROW(kimi)                 \
  ROW(layernorm)            \
  ROW(ling)                 \
  ROW(llama)                \
  ROW(mistral)              \
  ROW(olmo)                 \
  ROW(phi)                  \
  ROW(qwen)                 \
  ROW(step)

#define KVCAL_DECLARE(lineage) Lineage lineage##_lineage();
KVCAL_LINEAGES(KVCAL_DECLARE)

namespace {

std::map<std::string_view, const FamilyRow*> rows_by_name() {
  std::map<std::string_view, const FamilyRow*> rows;
#define KVCAL_ADD(lineage) \
  for (const FamilyRow& row : lineage##_lineage()) KVCAL_CHECK(rows.emplace(row.name, &row).second);
  KVCAL_LINEAGES(KVCAL_ADD)
  return rows;
}

/// The family of a row, from the one that it is like.
Architecture made(const FamilyRow& row, const Architecture& start) {
  Architecture family = like(start);
  family.name = row.name;
  family.model_types = {row.name};
  family.attention_class = row.attention_class;
  family.description = row.description;
  if (row.differ) row.differ(family);
  family.model_tensors = with_usual_shapes(std::move(family.model_tensors));
  family.layer_tensors = with_usual_shapes(std::move(family.layer_tensors));
  return family;
}

std::vector<Architecture> made_families() {
  const auto rows = rows_by_name();
  std::map<std::string_view, Architecture> made_ones;
  Architecture usual;
  usual.model_tensors = model_rows();
  usual.layer_tensors = joined({pre_norm_rows(), attention_rows(), mlp_rows()});
  const std::function<const Architecture&(std::string_view)> family_of =
      [&](std::string_view name) -> const Architecture& {
    if (name.empty()) return usual;
    if (const auto found = made_ones.find(name); found != made_ones.end()) return found->second;
    KVCAL_CHECK(rows.contains(name));
    const FamilyRow& row = *rows.at(name);
    return made_ones.emplace(name, made(row, family_of(row.like))).first->second;
  };
  for (const auto& [name, row] : rows) family_of(name);
  std::vector<Architecture> families;
  for (auto& [name, family] : made_ones) families.push_back(std::move(family));
  return families;
}

}  // namespace

void JsonObject::merge(std::string_view changes) {
  Json object = parse_json(text);
  object.merge_patch(parse_json(changes));
  text = object.dump();
}

Architecture like(const Architecture& family) {
  Architecture start = family;
  start.name = start.description = "";
  start.model_types.clear();
  return start;
}

TensorRows with_usual_shapes(TensorRows rows) {
  for (TensorRow& row : rows)
    if (row.shape.empty()) row.shape = row_of(row.role).shape;
  return rows;
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> kTable = made_families();
  return kTable;
}

}  // namespace kvcal
