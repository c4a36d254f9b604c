// What each tensor of a checkpoint is for, and what K and V do not need.
#include "stored/weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <regex>

#include "checkpoint/safetensors.h"
#include "family/expected_tensors.h"
#include "stored/fp8_checkpoint.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"
#include "support/tensors.h"

using namespace kvcal;
using test::contains;
using test::ScratchFolder;

namespace {

fs::path form_fixture(const std::string& format) {
  return test::tests_folder() / "fixtures" / "quantized" / format;
}
fs::path family_fixture(const std::string& family) {
  return test::tests_folder() / "fixtures" / "models" / family;
}

/// A fixture whose config and tensors were changed, opened.
struct Changed {
  using ChangeConfig = std::function<void(Json&)>;
  using ChangeTensors = std::function<void(std::vector<Tensor>&)>;

  Changed(const fs::path& from, const ChangeConfig& change_config,
          const ChangeTensors& change_tensors) {
    Json config = parse_json(read_text(from / "config.json"), {.has_python_constants = true});
    change_config(config);
    test::write_file(scratch / "config.json", dump_json(config));
    for (const char* file : {"hf_quant_config.json", "quantize_config.json"})
      if (fs::exists(from / file)) fs::copy_file(from / file, scratch / file);
    const SafetensorsFile file(from / "model.safetensors");
    std::vector<Tensor> tensors;
    for (const TensorView& view : file.tensors())
      tensors.push_back(
          {std::string(view.name), view.dtype, view.shape, {view.bytes.begin(), view.bytes.end()}});
    change_tensors(tensors);
    std::vector<TensorSource> sources;
    for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
    write_safetensors(scratch / "model.safetensors", std::move(sources), {});
    model_dir.emplace(scratch.path());
    config_ = read_model_config(*model_dir);
    quantization = read_checkpoint_quantization(*model_dir, config_);
    account = Weights::account(*model_dir, config_, &quantization);
  }

  TensorUse use(const std::string& name) const {
    const auto found = std::ranges::find(account.tensors, name, &AccountedTensor::name);
    REQUIRE(found != account.tensors.end());
    return found->use;
  }
  std::string refusal() const {
    return test::message_of([&] { check_described(*model_dir, config_, quantization); });
  }

  ScratchFolder scratch;
  std::optional<ModelDir> model_dir;
  ModelConfig config_;
  CheckpointQuantization quantization;
  TensorAccount account;
};

const Changed::ChangeConfig kSameConfig = [](Json&) {};
const Changed::ChangeTensors kSameTensors = [](std::vector<Tensor>&) {};

Changed::ChangeTensors without(const std::string& begin) {
  return [begin](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name.starts_with(begin); });
  };
}

void untie(Json& config) {
  config["tie_word_embeddings"] = false;
}

void rename_all(std::vector<Tensor>& tensors, const std::string& begin, const std::string& to) {
  for (Tensor& tensor : tensors)
    if (tensor.name.starts_with(begin)) tensor.name = to + tensor.name.substr(begin.size());
}

}  // namespace

TEST_CASE("tensor account: every tensor of every form is explained, once") {
  for (const auto& entry : fs::directory_iterator(test::tests_folder() / "fixtures/quantized")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    INFO(entry.path().string());
    const Changed same(entry.path(), kSameConfig, kSameTensors);
    CHECK(same.account.problems.empty());
    CHECK(same.account.head_problem.empty());
    CHECK(same.account.undescribed() == nullptr);
    CHECK(same.account.tensors.size() == same.model_dir->tensor_names().size());
    CHECK(std::ranges::all_of(same.account.tensors,
                              [](const AccountedTensor& one) { return is_explained(one.use); }));
    CHECK(same.refusal() == "no error");
  }
}

TEST_CASE("tensor account: without a config, codes and their scales are undescribed") {
  for (const std::string format :
       {"autofp8", "awq", "bnb_nf4", "gptq_4", "int8", "mxfp4", "nvfp4", "packed_int4", "quark"}) {
    INFO(format);
    const Changed bare(
        form_fixture(format), [](Json& config) { config.erase("quantization_config"); },
        kSameTensors);
    REQUIRE(bare.account.undescribed() != nullptr);
    CHECK_FALSE(bare.account.problems.empty());
    CHECK(contains(bare.refusal(), "q_proj"));
  }
}

TEST_CASE("tensor account: an excluded module with codes is named, with what the config says") {
  const std::string module = "model.layers.1.mlp.down_proj";
  const Changed excluded(
      form_fixture("autofp8"),
      [&](Json& config) { config["quantization_config"]["ignored_layers"].push_back(module); },
      kSameTensors);
  CHECK(excluded.use(module + ".weight") == TensorUse::kUndescribed);
  CHECK(excluded.use(module + ".weight_scale") == TensorUse::kUndescribed);
  CHECK(excluded.use("model.layers.0.mlp.down_proj.weight") == TensorUse::kRun);
  CHECK(excluded.use("model.layers.0.mlp.down_proj.weight_scale") == TensorUse::kScale);
  CHECK(excluded.use("model.norm.weight") == TensorUse::kRun);
  CHECK(contains(excluded.refusal(), "unreadable: " + module +
                                         ".weight is F8_E4M3, and the config does not say that the "
                                         "module is quantized"));
}

TEST_CASE("tensor account: K and V need no lm_head") {
  const Changed headless(family_fixture("llama"), untie, without("lm_head."));
  CHECK(headless.config_.lacks_head);
  CHECK(headless.account.problems.empty());
  CHECK(headless.refusal() == "no error");
  const Weights weights(*headless.model_dir, headless.config_, &headless.quantization);
  CHECK(contains(test::message_of([&] { weights.check_head(); }),
                 "the model gives no probabilities of tokens: the checkpoint holds no lm_head, and "
                 "config.json does not tie it to the embedding"));
  for (const ModuleName& module : list_modules(headless.config_))
    CHECK(module.role != Role::kLmHead);
}

TEST_CASE("tensor account: an lm_head of codes that nothing describes stops who needs it alone") {
  const Changed coded(family_fixture("llama"), untie, [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "lm_head.weight"; });
    const auto embedding = std::ranges::find(tensors, "model.embed_tokens.weight", &Tensor::name);
    REQUIRE(embedding != tensors.end());
    Shape shape = embedding->shape;
    shape.dims[1] /= 2;
    std::vector<std::byte> codes(element_count(shape), std::byte{0x22});
    const float scale = 0.5f;
    tensors.push_back({"lm_head.weight", DType::kU8, shape, std::move(codes)});
    tensors.push_back(make_f32_tensor("lm_head.weight_scale_2", Shape{1}, std::span(&scale, 1)));
  });
  CHECK(coded.account.problems.empty());
  CHECK(coded.use("lm_head.weight") == TensorUse::kUndescribed);
  const std::string problem =
      "unreadable: lm_head.weight is U8, and the config does not say that the module is quantized";
  CHECK(coded.account.head_problem == problem);
  const Weights weights(*coded.model_dir, coded.config_, &coded.quantization);
  CHECK(contains(test::message_of([&] { weights.check_head(); }), problem));
  CHECK(contains(coded.refusal(), problem));
}

TEST_CASE("tensor account: heads of other tasks lie beside the model") {
  const Changed reward(family_fixture("llama"), untie, [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "lm_head.weight"; });
    const float score = 1.0f;
    for (const char* name : {"score.weight", "v_head.summary.weight"})
      tensors.push_back(make_f32_tensor(name, Shape{1, 1}, std::span(&score, 1)));
  });
  CHECK(reward.account.problems.empty());
  CHECK(reward.use("score.weight") == TensorUse::kAside);
  CHECK(reward.use("v_head.summary.weight") == TensorUse::kAside);
}

TEST_CASE("tensor account: a tensor in the layers that nothing explains is no head") {
  const Changed odd(family_fixture("llama"), kSameConfig, [](std::vector<Tensor>& tensors) {
    const float one = 1.0f;
    tensors.push_back(make_f32_tensor("model.layers.0.extra.weight", Shape{1}, std::span(&one, 1)));
  });
  CHECK(odd.use("model.layers.0.extra.weight") == TensorUse::kUnknown);
  CHECK(contains(odd.refusal(), "unexpected: model.layers.0.extra.weight [1]"));
}

TEST_CASE("tensor account: names of a model that was saved without its head are found") {
  const Changed bare(family_fixture("qwen3"), untie, [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "lm_head.weight"; });
    rename_all(tensors, "model.", "");
  });
  CHECK(bare.config_.backbone_prefix.empty());
  CHECK(bare.account.problems.empty());
  CHECK(bare.config_.lacks_head);
}
