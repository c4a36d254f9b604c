#include "family/architecture.h"
#include "family/model_config.h"
#include "support/catch.h"
#include "support/model_fixture.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

Json kimi_k3() {
  return parse_json(read_text(test::model_fixture("kimi_k3") / "config.json"));
}

std::string refusal_of(const Json& json) {
  return test::message_of([&] { parse_model_config(json); });
}

TEST_CASE("attended_sums_config: a stream for the embedding and one for each block of layers") {
  Json json = kimi_k3();
  Json& block = json["text_config"]["attn_res_block_size"];
  const auto streams = [&] { return parse_model_config(json).streams; };
  CHECK(streams() == 1 + 3);
  CHECK(parse_model_config(json).carried_width(20) == 4 * 24);
  block = 5;
  CHECK(streams() == 1 + 1);
  block = 100;
  CHECK(streams() == 1 + 1);
  block = 1;
  CHECK(streams() == 1 + 5);
  block = nullptr;
  CHECK(streams() == 1);
  CHECK_FALSE(parse_model_config(json).attends_residuals);
  block = 0;
  CHECK(test::contains(refusal_of(json), "key 'attn_res_block_size' is 0, expected 1 to"));
}

TEST_CASE("attended_sums_config: more sums than an operation holds are refused") {
  Json json = kimi_k3();
  Json& text = json["text_config"];
  text["attn_res_block_size"] = 1;
  text["num_hidden_layers"] = 64;
  CHECK(test::contains(refusal_of(json),
                       "key 'attn_res_block_size' is 1, which gives 64 layers 65 residual sums, "
                       "expected up to 64"));
  text["attn_res_block_size"] = 2;
  CHECK(parse_model_config(json).streams == 33);
}

TEST_CASE("attended_sums_config: a Kimi Linear outside of Kimi-K3 is not taken for one without") {
  Json json = parse_json(read_text(test::model_fixture("kimi_linear") / "config.json"));
  json["attn_res_block_size"] = nullptr;
  CHECK(parse_model_config(json).architecture->name == "kimi_linear");
  json["attn_res_block_size"] = 2;
  CHECK(test::contains(refusal_of(json),
                       "key 'attn_res_block_size' is 2, which is not supported for kimi_linear"));
}

TEST_CASE(
    "attended_sums_config: SiTU's numbers count with SiTU alone, in families that read them") {
  Json json = kimi_k3();
  Json& text = json["text_config"];
  CHECK(parse_model_config(json).activation == Activation::kSitu);
  CHECK(parse_model_config(json).activation_beta == 2.0f);
  CHECK(parse_model_config(json).up_softcap == 3.0f);
  text["activation_situ_linear_beta"] = nullptr;
  CHECK(parse_model_config(json).up_softcap == 0.0f);
  text["activation_situ_linear_beta"] = 3.0;
  text["hidden_act"] = "silu";
  CHECK(parse_model_config(json).up_softcap == 0.0f);
  Json llama = parse_json(read_text(test::model_fixture("llama") / "config.json"));
  llama["hidden_act"] = "situ";
  CHECK(test::contains(refusal_of(llama),
                       "key 'hidden_act' is 'situ', whose numbers the family "
                       "llama does not read"));
}

TEST_CASE("attended_sums_config: gates of delta nets with and without a rank") {
  Json json = kimi_k3();
  Json& linear = json["text_config"]["linear_attn_config"];
  const auto recurrent = [&] { return parse_model_config(json).recurrent; };
  CHECK(recurrent().gate_rank == 0);
  CHECK(recurrent().decay_rank == 6);
  CHECK(recurrent().gates_width() == 24 + 6);
  CHECK(recurrent().decay_floor == -5.0f);
  linear["use_full_rank_gate"] = false;
  CHECK(recurrent().gates_width() == 6 + 6);
  linear.erase("gate_lower_bound");
  CHECK(recurrent().decay_floor == 0.0f);
}

TEST_CASE("attended_sums_config: one expert a token keeps its weight") {
  Json json = kimi_k3();
  CHECK(parse_model_config(json).norm_topk_prob);
  json["text_config"]["num_experts_per_token"] = 1;
  CHECK_FALSE(parse_model_config(json).norm_topk_prob);
}

}  // namespace
}  // namespace kvcal
