// What verify says of KV scales beside packed weights of experts, against what LMDeploy's own code
// did: reference/lmdeploy_packed.py writes the same checkpoints.
#include "engines/support/engine_case.h"
#include "engines/support/recorded_variant.h"
#include "support/catch.h"

using namespace kvcal;
using test::EngineCase;
using test::fixture;
using test::tells;

namespace {

/// The checkpoint of a case: its scales, and of the weights the names that tell what is packed.
VerifyReport verify_case(const Json& configs, const std::string& name, const Json& row) {
  const Json& config = configs.at(row.at("config").get<std::string>());
  EngineCase subject(config);
  subject.quantize(row.at("quantization_config"));
  for (int64_t layer = 0; layer < config.at("num_hidden_layers"); ++layer) {
    const std::string at = "model.layers." + std::to_string(layer);
    for (const auto& [rest, value] : row.at("scales").items())
      subject.add(at + ".self_attn" + rest, value.get<float>());
    if (config.at("model_type") == "qwen3_moe")
      subject.add(at + ".mlp.experts.0.up_proj.weight_packed", 0.0f);
    if (name.find("_all") != std::string::npos)
      subject.add(at + ".self_attn.q_proj.weight_packed", 0.0f);
  }
  return subject.verify("lmdeploy");
}

}  // namespace

TEST_CASE("verify says of scales beside packed weights what LMDeploy did") {
  const Json record = fixture("packed_lmdeploy");
  CHECK(record.at("cases").size() == 28);
  size_t loaded = 0;
  for (const auto& [name, row] : record.at("cases").items()) {
    const VerifyReport report = verify_case(record.at("configs"), name, row);
    const bool loads = row.at("seen").at("loads");
    INFO(name << " " << row.at("seen").dump() << dump_json(report_json(report)));
    CHECK(report.loads == loads);
    CHECK(report.is_known);
    loaded += static_cast<size_t>(loads);
    if (!row.at("scales").empty()) CHECK(loses_scales(report));
  }
  CHECK(loaded == 2);
}
