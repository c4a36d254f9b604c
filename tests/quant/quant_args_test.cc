#include "quant/quant_scheme.h"

#include "support/catch.h"

#include <vector>

using namespace kvcal;

TEST_CASE("quant args: the twelve keys as llm-compressor saves them") {
  QuantArgs args;
  args.type = QuantType::kFloat;
  CHECK(dump_json(to_json(args), -1) ==
        "{\"actorder\":null,\"block_structure\":null,\"dynamic\":false,\"group_size\":null,\"num_"
        "bits\":8,"
        "\"observer\":null,\"observer_kwargs\":{},\"scale_dtype\":null,\"strategy\":\"tensor\","
        "\"symmetric\":true,\"type\":\"float\",\"zp_dtype\":null}\n");
}

TEST_CASE("quant args: what is set is written") {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = Strategy::kAttnHead;
  args.observer = "minmax";
  args.observer_kwargs = {{"averaging_constant", 0.5}};
  args.block_structure = std::vector<int64_t>{128, 128};
  args.zp_dtype = "torch.float8_e4m3fn";
  const Json json = to_json(args);
  CHECK(json["strategy"] == "attn_head");
  CHECK(json["observer"] == "minmax");
  CHECK(json["observer_kwargs"]["averaging_constant"] == 0.5);
  CHECK(json["block_structure"] == Json::array({128, 128}));
  CHECK(json["zp_dtype"].is_null());
  args.symmetric = false;
  CHECK(to_json(args)["zp_dtype"] == "torch.float8_e4m3fn");
}

TEST_CASE("quant args: a missing strategy follows from group_size") {
  QuantArgs args;
  CHECK(resolved_strategy(args) == Strategy::kTensor);
  args.group_size = 128;
  CHECK(resolved_strategy(args) == Strategy::kGroup);
  args.group_size = -1;
  CHECK(resolved_strategy(args) == Strategy::kChannel);
  args.group_size = 0;
  CHECK_THROWS_AS(resolved_strategy(args), Error);
  args.strategy = Strategy::kTensorGroup;
  CHECK(resolved_strategy(args) == Strategy::kTensorGroup);
}

TEST_CASE("quant args: names are compressed-tensors' own") {
  const std::vector<std::pair<Strategy, std::string>> names{
      {Strategy::kTensor, "tensor"},     {Strategy::kChannel, "channel"},
      {Strategy::kGroup, "group"},       {Strategy::kBlock, "block"},
      {Strategy::kToken, "token"},       {Strategy::kTensorGroup, "tensor_group"},
      {Strategy::kAttnHead, "attn_head"}};
  for (const auto& [strategy, name] : names) CHECK(name_of(strategy) == name);
  CHECK(name_of(QuantType::kInt) == "int");
  CHECK(name_of(QuantType::kFloat) == "float");
}
