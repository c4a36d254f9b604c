#include "inspect/verification.h"

#include "stored/weights.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {

using test::model_fixture;

TEST_CASE("verification: all engines, in the order of their rules") {
  const std::vector<VerifyReport> reports = verify(model_fixture("llama"), {"all"}, {});
  const std::vector<std::string> names = engine_rules().names();
  REQUIRE(reports.size() == names.size());
  for (size_t i = 0; i < names.size(); ++i) CHECK(reports[i].engine == names[i]);
}

TEST_CASE("verification: engines are named as their rules are") {
  CHECK(engine_choice({"tgi", "vllm"}) == std::vector<std::string>{"tgi", "vllm"});
  CHECK(test::contains(test::message_of([] { engine_choice({"vlm"}); }), "vllm"));
}

TEST_CASE("verification: engines that hold nothing are told from those that lose something") {
  VerifyReport empty;
  empty.engine = "b";
  empty.layers.emplace_back();
  VerifyReport holding = empty;
  holding.engine = "a";
  holding.layers[0].v.source = "model.layers.0.self_attn.v_scale";
  empty.kv_cache_dtype = holding.kv_cache_dtype = "fp8";
  VerifyReport losing = holding;
  losing.engine = "c";
  losing.findings.emplace_back().severity = Severity::kError;
  VerifyReport unknown = holding;
  unknown.engine = "d";
  unknown.is_known = false;
  VerifyReport idle = holding, asked = holding;
  idle.engine = "e";
  idle.kv_cache_dtype = "auto";
  asked.engine = "f";
  asked.kv_cache_dtype = "bfloat16";
  const Verdict verdict = verdict_of({holding, empty, losing, unknown, idle, asked});
  CHECK(verdict.idle == std::vector<std::string>{"e", "f"});
  CHECK(verdict.unknown == std::vector<std::string>{"d"});
  CHECK(verdict.holding == std::vector<std::string>{"a"});
  CHECK(verdict.empty == std::vector<std::string>{"b"});
  CHECK(verdict.losing == std::vector<std::string>{"c"});
}

TEST_CASE("verification: a config.json that is not read is named once") {
  const test::ScratchFolder folder;
  fs::copy_file(model_fixture("llama") / "model.safetensors", folder / "model.safetensors");
  test::write_file(folder / "config.json", R"({"model_type": "zamba2"})");
  const std::string message = test::message_of([&] { verify(folder.path(), {"vllm"}, {}); });
  CHECK(message.starts_with((folder / "config.json: ").string()));
  CHECK(message.find("config.json") == message.rfind("config.json"));
}

}  // namespace kvcal
