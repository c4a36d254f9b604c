// verify's findings on scales of draft layers against what engines' loaders of drafts did with
// them: reference/ENGINE_draft_scales.py write the same names.
#include "engines/support/recorded_variant.h"
#include "stored/read_model_config.h"
#include "support/catch.h"
#include "support/folders.h"

using namespace kvcal;
using test::contains;
using test::EngineCase;
using test::fixture;
using test::tells;

namespace {

const Json kScheme = {{"type", "float"},
                      {"num_bits", 8},
                      {"strategy", "tensor"},
                      {"symmetric", true},
                      {"dynamic", false}};
const Json kDeclared = {{"quant_method", "compressed-tensors"},
                        {"config_groups", Json::object()},
                        {"ignore", Json::array()},
                        {"kv_cache_scheme", kScheme}};

void put(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at; (at = text.find(from)) != std::string::npos;) text.replace(at, from.size(), to);
}

/// A fixture with a draft layer, and scales as the scripts that recorded the engines write them:
/// those of the model as k_scale, those of the draft under the name, which has k for the side.
class DraftCase {
 public:
  /// has_main: whether the model has scales.
  explicit DraftCase(const std::string& fixture, const Json& declared = kDeclared,
                     bool has_main = true)
      : source_((test::tests_folder() / "fixtures/drafts" / fixture).string()),
        subject_(source_.config()) {
    const Json& config = source_.config();
    const Json text = config.value("text_config", config);
    const std::string behind =
        "layers." + std::to_string(text.at("num_hidden_layers").get<int64_t>()) + ".self_attn";
    for (const std::string& name : source_.tensor_names()) {
      const TensorView* view = source_.find(name);
      subject_.add_bytes(name, view->dtype, view->shape.dims,
                         {view->bytes.begin(), view->bytes.end()});
      if (!name.ends_with(".self_attn.o_proj.weight")) continue;
      const std::string module = name.substr(0, name.find(".o_proj"));
      if (module.starts_with("mtp.") || contains(module, behind))
        module_ = module;
      else if (has_main)
        for (const char* side : {".k_scale", ".v_scale"}) subject_.add(module + side, 0.125f);
    }
    REQUIRE_FALSE(module_.empty());
    if (!declared.is_null()) subject_.quantize(declared);
  }

  /// name: "self_attn.k_proj.k_scale" for K's scale, as the records have it; "": none.
  void add_scales(const std::string& name) {
    if (name.empty()) return;
    const std::string rest = name.substr(std::string("self_attn").size());
    std::string of_v = rest;
    put(of_v, ".k_", ".v_");
    subject_.add(module_ + rest, 0.4375f);
    subject_.add(module_ + of_v, 0.46875f);
  }

  VerifyReport verify(const std::string& engine) const { return subject_.verify(engine); }
  const std::string& module() const { return module_; }

 private:
  ModelDir source_;
  EngineCase subject_;
  std::string module_;
};

VerifyReport verify_draft(const std::string& engine, const std::string& model,
                          const std::string& name, const Json& declared = kDeclared,
                          bool has_main = true) {
  DraftCase subject(model, declared, has_main);
  subject.add_scales(name);
  return subject.verify(engine);
}

size_t count_of(const VerifyReport& report, Severity severity, const std::string& part) {
  return static_cast<size_t>(std::ranges::count_if(report.findings, [&](const Finding& finding) {
    return finding.severity == severity && contains(finding.message, part);
  }));
}

/// The names of a record that load.
bool is_held(const Json& record, const std::string& name) {
  return record.at("names").contains(name) && record.at("names").at(name).at("draft") == true;
}

/// Names that a remedy tells to take load, where the record has them.
void check_remedies(const VerifyReport& report, const Json& record) {
  for (const Finding& finding : report.findings) {
    const std::string begin = "rename it to ";
    if (!contains(finding.message, "loader of drafts") || !finding.remedy.starts_with(begin))
      continue;
    std::string name = finding.remedy.substr(finding.remedy.find("self_attn"));
    put(name, ".v_", ".k_");
    CHECK(is_held(record, name));
  }
}

Json record_of_drafts(const std::string& engine, const std::string& model) {
  const Json record = fixture("drafts_" + test::records_of(engine))["drafts"].at(model);
  REQUIRE(record.at("names").size() == 8);
  return record;
}

/// Returns the number of names of which verify speaks: it is silent of a model that is refused.
size_t check_names(const std::string& engine, const std::string& model,
                   const Json& declared = kDeclared, bool has_main = true) {
  const Json record = record_of_drafts(engine, model);
  size_t judged = 0;
  for (const auto& [name, seen] : record.at("names").items()) {
    const VerifyReport report = verify_draft(engine, model, name, declared, has_main);
    INFO(engine << " " << model << " '" << name << "' " << seen.dump()
                << dump_json(report_json(report)));
    if (!report.loads) continue;
    ++judged;
    const Json& draft = seen.at("draft");
    const bool drops = draft.is_string() && draft.get<std::string>().starts_with("holds");
    const bool stops = draft.is_string() && !drops;
    // Both sides have a finding of their own.
    CHECK(count_of(report, Severity::kError, "loader of drafts stops at") == (stops ? 2 : 0));
    CHECK(count_of(report, Severity::kWarning, "loader of drafts drops") == (drops ? 2 : 0));
    CHECK_FALSE(tells(report, Severity::kNote, "not known: what"));
    CHECK_FALSE(tells(report, Severity::kNote, "not known: whether its drafts"));
    check_remedies(report, record);
  }
  return judged;
}

}  // namespace

TEST_CASE("drafts: verify says of every name what the engine's loader of drafts did") {
  for (const char* model : {"glm4_moe", "deepseek_v3", "qwen3_5"}) {
    for (const char* engine : {"vllm@0.32", "vllm@0.33", "sglang", "aphrodite"})
      CHECK(check_names(engine, model) == 8);
  }
}

TEST_CASE("drafts: LMDeploy's loader of drafts stops at every name") {
  for (const char* model : {"glm4_moe", "deepseek_v3", "qwen3_5"})
    CHECK(check_names("lmdeploy", model, Json(), false) == 8);
}

TEST_CASE("drafts: an engine without drafts passes over the scales of the layer") {
  const std::string text = "it runs no draft layers and passes over the scales of this one";
  size_t told = 0;
  for (const char* engine : {"transformers@5.17", "transformers@5.23", "transformers@5.24", "tgi"})
    for (const char* model : {"glm4_moe", "deepseek_v3", "qwen3_5", "qwen3_next"}) {
      const Json record = record_of_drafts(engine, model);
      for (const auto& [name, seen] : record.at("names").items()) {
        // Null: nothing of the layer was asked for.
        const bool is_run = seen.at("main") == true || seen.at("draft").is_null();
        if (!is_run) continue;
        CHECK(seen.at("draft").is_null());
        const VerifyReport report =
            verify_draft(engine, model, name, seen.at("main") == true ? kDeclared : Json());
        INFO(engine << " " << model << " '" << name << "' " << dump_json(report_json(report)));
        CHECK(report.loads);
        CHECK(tells(report, Severity::kNote, text) == !name.empty());
        CHECK_FALSE(tells(report, Severity::kNote, "not known: what"));
        CHECK_FALSE(tells(report, Severity::kNote, "not known: whether its drafts"));
        ++told;
      }
    }
  CHECK(told == 104);
}

TEST_CASE("drafts: a layer without scales has 1.0 where the cache is FP8 and a name would load") {
  const std::string text = "the draft layer has no scales";
  CHECK(tells(verify_draft("vllm", "glm4_moe", ""), Severity::kWarning, text));
  CHECK_FALSE(tells(verify_draft("vllm", "glm4_moe", "", Json()), Severity::kWarning, text));
  CHECK_FALSE(
      tells(verify_draft("vllm", "glm4_moe", "self_attn.attn.k_scale"), Severity::kWarning, text));
  CHECK_FALSE(tells(verify_draft("sglang", "glm4_moe", ""), Severity::kWarning, text));
}

TEST_CASE("drafts: a name at which the loader stops is an error with the name that loads") {
  const VerifyReport report = verify_draft("vllm", "glm4_moe", "self_attn.k_proj.k_scale");
  CHECK(report.loads);
  CHECK(loses_scales(report));
  const auto told = [&](const std::string& name) {
    return *std::ranges::find_if(report.findings, [&](const Finding& finding) {
      return finding.message == "its loader of drafts stops at model.layers.2.self_attn." + name;
    });
  };
  CHECK(told("k_proj.k_scale").layers == std::vector<int64_t>{2});
  CHECK(told("k_proj.k_scale").remedy == "rename it to model.layers.2.self_attn.attn.k_scale");
  CHECK(told("v_proj.v_scale").remedy == "rename it to model.layers.2.self_attn.attn.v_scale");
}

TEST_CASE("drafts: a scale that is dropped is no error, since the answers stay") {
  const VerifyReport report = verify_draft("sglang", "qwen3_5", "self_attn.qkv_proj.k_scale");
  CHECK(tells(report, Severity::kWarning, "drops mtp.layers.0.self_attn.qkv_proj.k_scale"));
  CHECK_FALSE(loses_scales(report));
}

TEST_CASE("drafts: what was not run is not known") {
  const std::string whether = "not known: whether its drafts read";
  CHECK(tells(verify_draft("vllm", "qwen3_next", "self_attn.k_scale"), Severity::kNote, whether));
  CHECK(tells(verify_draft("vllm@0.33", "qwen3_next", "self_attn.k_scale"), Severity::kNote,
              whether));
  CHECK_FALSE(tells(verify_draft("vllm", "qwen3_next", ""), Severity::kNote, whether));
  Json fp8 = kDeclared;
  fp8["config_groups"] = {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", 8}}}}}};
  CHECK(tells(verify_draft("vllm", "qwen3_5", "self_attn.k_scale", fp8), Severity::kNote, whether));
  const VerifyReport report = verify_draft("vllm", "qwen3_5", "self_attn.kv_scale");
  CHECK(tells(report, Severity::kNote,
              "not known: what its loader of drafts does with mtp.layers.0.self_attn.kv_scale"));
}
