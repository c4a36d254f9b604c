#include "family/model_type_support.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/file.h"
#include "family/architecture.h"
#include "family/wrapper.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

using Names = std::set<std::string, std::less<>>;

/// A row of tests/fixtures/family/model_types.tsv.
struct ListedType {
  std::string task, text_type;
};

/// transformers' types by model_type. reference/model_types.py wrote them.
std::map<std::string, ListedType, std::less<>> listed_types() {
  std::istringstream text(
      read_text(test::tests_folder() / "fixtures" / "family" / "model_types.tsv"));
  std::map<std::string, ListedType, std::less<>> types;
  std::string line;
  REQUIRE(std::getline(text, line));
  REQUIRE(line.starts_with("# transformers 5.24.0"));
  while (std::getline(text, line)) {
    std::istringstream fields(line);
    std::string model_type, task, name, text_type;
    REQUIRE((fields >> model_type >> task >> name >> text_type));
    types[model_type] = {task, text_type};
  }
  return types;
}

/// Families whose code transformers has not, or lists under other tasks.
const Names kOutsideOfList{"deepseek_ocr2_text",
                           "emu3_text_model",
                           "glm4v_moe_text",
                           "glm4v_text",
                           "glm5_next_text",
                           "glm_ocr_text",
                           "granite4_vision_text",
                           "granite_docling_text",
                           "hunyuan_vl_text",
                           "internlm2",
                           "kimi_k2",
                           "kimi_k3",
                           "kimi_k3_text",
                           "mistral_large4_text",
                           "mllama_text_model",
                           "paddleocr_vl_text",
                           "qwen2_5_omni_text",
                           "qwen2_5_vl_text",
                           "qwen2_vl_text",
                           "qwen3_omni_moe_text",
                           "qwen3_vl_moe_text",
                           "qwen3_vl_text",
                           "step3p5"};

Names family_types() {
  Names types;
  for (const Architecture& architecture : architectures())
    types.insert(architecture.model_types.begin(), architecture.model_types.end());
  return types;
}

}  // namespace

TEST_CASE("model_type_support: every table's types are transformers'") {
  const auto listed = listed_types();
  for (const std::string& type : family_types()) {
    INFO(type);
    CHECK(listed.contains(type) != kOutsideOfList.contains(type));
  }
  for (const Wrapper& wrapper : wrappers()) {
    INFO(wrapper.model_type);
    const auto it = listed.find(wrapper.model_type);
    REQUIRE((it != listed.end()) != kOutsideOfList.contains(wrapper.model_type));
    if (it == listed.end()) continue;
    CHECK((it->second.text_type == wrapper.text_type || it->second.text_type == "-"));
  }
  for (const RefusedModelType& refused : refused_model_types()) {
    INFO(refused.model_type);
    CHECK(listed.contains(refused.model_type) != kOutsideOfList.contains(refused.model_type));
  }
}

TEST_CASE("model_type_support: no type is in two tables") {
  Names seen = family_types();
  for (const Wrapper& wrapper : wrappers()) CHECK(seen.emplace(wrapper.model_type).second);
  for (const RefusedModelType& refused : refused_model_types()) {
    INFO(refused.model_type);
    CHECK(seen.emplace(refused.model_type).second);
  }
}

TEST_CASE("model_type_support: a config.json gets what the table says of its type") {
  for (const auto& [type, row] : listed_types()) {
    INFO(type);
    const Json config{{"model_type", type}};
    const ModelTypeSupport found = support_of(type);
    if (found.support == Support::kRuns) {
      CHECK(text_model_of(config).architecture->name == found.detail);
      continue;
    }
    if (found.support == Support::kWrapper) {
      Json around = config;
      const auto row = std::ranges::find(wrappers(), type, &Wrapper::model_type);
      const std::string_view holder = row->rules.around_text;
      Json& outer = holder.empty() ? around : around[std::string(holder)];
      outer["text_config"]["model_type"] = found.detail;
      const TextModel model = text_model_of(around);
      CHECK(model.wrapper_type == type);
      CHECK(model.model_type == found.detail);
      continue;
    }
    const std::string message = test::message_of([&] { text_model_of(config); });
    const std::string refusal = "model_type '" + type + "' is not supported";
    if (found.support == Support::kRefused) {
      CHECK(message == refusal + ": " + std::string(found.detail));
    } else {
      CHECK(message.starts_with(refusal));
      CHECK(test::contains(message, "; kvcal families lists what is"));
    }
  }
}

TEST_CASE("model_type_support: a refused text model is refused around any wrapper") {
  const Json config{{"model_type", "new_vision_model"},
                    {"text_config", {{"model_type", "zamba2"}}}};
  CHECK(test::contains(test::message_of([&] { text_model_of(config); }),
                       std::string(refusal_of("zamba2"))));
}

TEST_CASE("model_type_support: more than half of transformers' types run, and one is unknown") {
  const auto listed = listed_types();
  std::map<Support, size_t> counts;
  std::string unknown;
  for (const auto& [type, row] : listed) {
    const Support support = support_of(type).support;
    ++counts[support];
    if (support == Support::kUnknown) unknown += type + ";";
  }
  CHECK(2 * (counts[Support::kRuns] + counts[Support::kWrapper]) > listed.size());
  // It runs where the names of its text model are usual ones: no published checkpoint was seen.
  CHECK(unknown == "nemo_speechlm;");
}

}  // namespace kvcal
