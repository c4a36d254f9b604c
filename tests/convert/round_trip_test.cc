#include <sstream>

#include "convert/support/round_trips.h"
#include "synth/synthetic.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// What becomes of every pair of forms: rows are where it begins and ends, columns where it goes in
/// between. "same" is byte for byte in all files. Other words are in refusals.
struct PairTable {
  std::string recipe;  ///< what is done to weights; empty: 16 bits
  std::string rows;
  std::map<std::string, std::string> refusals = {};  ///< word → part of the error
};

const std::string kNoFp8Weights =
    "is for FP8 weights; the checkpoint has none and none are made; for 16-bit weights use "
    "compressed-tensors";

const PairTable k16Bits{.recipe = "",
                        .rows = R"(
                    compressed-tensors modelopt quark fp8    tgi    scales-json attn_head
compressed-tensors  same               same     same  no     merged merged      same
modelopt            same               same     same  no     merged merged      same
quark               same               same     same  no     merged merged      same
fp8                 no                 no       no    no     no     no          no
tgi                 same               same     same  no     same   same        same
scales-json         same               same     same  no     same   same        same
attn_head           merged             merged   merged no    merged merged      same
)",
                        .refusals = {{"no", kNoFp8Weights}}};

const PairTable kStaticTensors{.recipe = "scheme: FP8", .rows = R"(
                    compressed-tensors modelopt quark fp8    tgi    scales-json attn_head
compressed-tensors  same               same     same  same   merged merged      same
modelopt            same               same     same  same   merged merged      same
quark               same               same     same  same   merged merged      same
fp8                 same               same     same  same   merged merged      same
tgi                 same               same     same  same   same   same        same
scales-json         same               same     same  same   same   same        same
attn_head           merged             merged   merged merged merged merged     same
)"};

const PairTable kDynamicTensors{.recipe = R"(config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 8, type: float, strategy: tensor, symmetric: true}
          input_activations: {num_bits: 8, type: float, strategy: token, dynamic: true})",
                                .rows = R"(
                    compressed-tensors modelopt quark fp8    tgi    scales-json attn_head
compressed-tensors  same               no       same  same   merged merged      same
modelopt            no                 no       no    no     no     no          no
quark               same               no       same  same   merged merged      same
fp8                 same               no       same  same   merged merged      same
tgi                 same               no       same  same   same   same        same
scales-json         same               no       same  same   same   same        same
attn_head           merged             no       merged merged merged merged     same
)",
                                .refusals = {{"no",
                                              "ModelOpt has no word for a weight of strategy "
                                              "tensor with inputs dynamic by token"}}};

const PairTable kDynamicChannels{.recipe = "scheme: FP8_DYNAMIC",
                                 .rows = R"(
                    compressed-tensors modelopt quark fp8    tgi    scales-json attn_head
compressed-tensors  same               same     same  no     merged merged      same
modelopt            same               same     same  no     merged merged      same
quark               same               same     same  no     merged merged      same
fp8                 no                 no       no    no     no     no          no
tgi                 same               same     same  no     same   same        same
scales-json         same               same     same  no     same   same        same
attn_head           merged             merged   merged no    merged merged      same
)",
                                 .refusals = {{"no",
                                               "quant_method fp8 has no word for a weight of "
                                               "strategy channel with inputs dynamic by token"}}};

const PairTable kBlocks{.recipe = "scheme: FP8_BLOCK", .rows = kStaticTensors.rows};

/// FP8 weights, inputs in 16 bits.
const PairTable kWeightsOnly{.recipe = R"(config_groups:
        group_0:
          targets: [Linear]
          weights: {num_bits: 8, type: float, strategy: channel, symmetric: true})",
                             .rows = R"(
                    compressed-tensors modelopt quark  fp8    tgi    scales-json attn_head
compressed-tensors  same               modelopt quark  fp8    merged merged      same
modelopt            modelopt           modelopt modelopt modelopt modelopt modelopt modelopt
quark               quark              quark    quark  quark  quark  quark       quark
fp8                 fp8                fp8      fp8    fp8    fp8    fp8         fp8
tgi                 same               modelopt quark  fp8    same   same        same
scales-json         same               modelopt quark  fp8    same   same        same
attn_head           merged             modelopt quark  fp8    merged merged      same
)",
                             .refusals = {{"modelopt",
                                           "ModelOpt has no word for a weight of strategy channel "
                                           "with 16-bit inputs"},
                                          {"quark",
                                           "Quark's form has no word for a weight of strategy "
                                           "channel with 16-bit inputs"},
                                          {"fp8",
                                           "quant_method fp8 has no word for a weight of strategy "
                                           "channel with 16-bit inputs"}}};

using Cells = std::map<std::pair<std::string, std::string>, std::string>;

/// No pair is left out and none is there twice.
Cells cells_of(const PairTable& table) {
  std::istringstream words(table.rows);
  std::string word;
  for (const char* stored : kForms) {
    words >> word;
    REQUIRE(word == stored);
  }
  Cells cells;
  for (const char* from : kForms) {
    words >> word;
    REQUIRE(word == from);
    for (const char* to : kForms) words >> cells[{from, to}];
  }
  REQUIRE_FALSE(words.fail());
  words >> word;
  REQUIRE(words.eof());
  return cells;
}

void check_pairs(const PairTable& table, const fs::path& model) {
  RoundTrips apart({table.recipe, model}, scales_apart);
  RoundTrips shared({table.recipe, model}, one_scale_a_layer);
  for (const auto& [pair, word] : cells_of(table)) {
    const auto& [from, to] = pair;
    const std::string outcome = apart.outcome(from, to);
    INFO(from << " -> " << to << ": " << outcome);
    if (const auto refusal = table.refusals.find(word); refusal != table.refusals.end()) {
      CHECK(contains(outcome, refusal->second));
      continue;
    }
    CHECK(outcome == word);
    // Where a layer has one value there is nothing to merge.
    if (word == "merged") CHECK(shared.outcome(from, to) == "same");
  }
}

/// Wide enough for blocks of 128 x 128.
void write_wide_model(const fs::path& folder) {
  const Json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", 128},
                       {"num_hidden_layers", 2},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 2},
                       {"intermediate_size", 256},
                       {"vocab_size", 64},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-5},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", false},
                       {"torch_dtype", "bfloat16"}};
  SilentDiagnostics silent;
  write_synthetic_checkpoint(config, {.threads = 1}, folder, silent);
}

}  // namespace

TEST_CASE("round trips: every pair of forms, 16-bit weights") {
  check_pairs(k16Bits, model_fixture("llama"));
}

TEST_CASE("round trips: every pair of forms, FP8 weights with a static scale a tensor") {
  check_pairs(kStaticTensors, model_fixture("llama"));
}

TEST_CASE("round trips: every pair of forms, FP8 weights with a scale a tensor, inputs by token") {
  check_pairs(kDynamicTensors, model_fixture("llama"));
}

TEST_CASE("round trips: every pair of forms, FP8 weights with a scale a channel") {
  check_pairs(kDynamicChannels, model_fixture("llama"));
}

TEST_CASE("round trips: every pair of forms, FP8 weights with a scale a block of 128 x 128") {
  const ScratchFolder model;
  write_wide_model(model.path());
  check_pairs(kBlocks, model.path());
}

TEST_CASE("round trips: every pair of forms, FP8 weights with 16-bit inputs") {
  check_pairs(kWeightsOnly, model_fixture("llama"));
}

TEST_CASE("round trips: files of LightLLM and ONNX Runtime GenAI hold K and V of every head") {
  for (const std::string recipe : {"", "scheme: FP8"}) {
    RoundTrips trips({recipe, model_fixture("llama")}, scales_apart);
    for (const std::string file : {"lightllm", "onnxruntime-genai"}) {
      for (const std::string from : kForms) {
        if (from == "fp8" && recipe.empty()) continue;  // is for FP8 weights
        INFO(from << " -> " << file << ", " << recipe);
        CHECK(trips.outcome(from, file) == "same");
      }
      for (const std::string to :
           {"compressed-tensors", "modelopt", "quark", "lightllm", "onnxruntime-genai"}) {
        INFO(file << " -> " << to << ", " << recipe);
        CHECK(trips.outcome(file, to) == "same");
      }
    }
  }
}
