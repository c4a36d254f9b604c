// Scales are checked when a checkpoint is opened, and leave the process's memory until their layer
// is packed.
#include <cstring>

#include "core/json.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weights.h"
#include "support/catch.h"
#include "support/mapped_memory.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

constexpr int64_t kSide = 1024, kGroup = 8;

Json config() {
  const Json weights = {{"num_bits", 4},
                        {"type", "int"},
                        {"symmetric", true},
                        {"strategy", "group"},
                        {"group_size", kGroup}};
  const Json group = {{"targets", {"Linear"}}, {"weights", weights}};
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", kSide},
          {"intermediate_size", kSide},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 8},
          {"vocab_size", 8},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", true},
          {"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"ignore", {"lm_head"}},
            {"config_groups", {{"group_0", group}}}}}};
}

/// Elements of one value.
Tensor filled(const std::string& name, DType dtype, const Shape& shape, uint64_t value) {
  Tensor tensor{name, dtype, shape, std::vector<std::byte>(byte_count(shape, dtype))};
  const auto size = static_cast<size_t>(bits_of_dtype(dtype) / 8);
  for (size_t at = 0; at < tensor.bytes.size(); at += size)
    std::memcpy(tensor.bytes.data() + at, &value, size);
  return tensor;
}

void write_model(const fs::path& folder) {
  constexpr uint64_t kOne = 0x3c00;  // F16
  std::vector<Tensor> tensors{filled("model.embed_tokens.weight", DType::kF16, {8, kSide}, kOne),
                              filled("model.norm.weight", DType::kF16, {kSide}, kOne)};
  const std::string layer = "model.layers.0.";
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    tensors.push_back(filled(layer + norm + ".weight", DType::kF16, {kSide}, kOne));
  for (const char* linear : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    const std::string module = layer + linear;
    tensors.push_back(filled(module + ".weight_packed", DType::kI32, {kSide, kSide / 8}, 0x12345));
    tensors.push_back(filled(module + ".weight_scale", DType::kF16, {kSide, kSide / kGroup}, kOne));
    tensors.push_back(filled(module + ".weight_shape", DType::kI64, {2}, kSide));
  }
  std::vector<TensorSource> sources;
  for (const Tensor& tensor : tensors) sources.push_back(source_of(tensor));
  write_safetensors(folder / "model.safetensors", std::move(sources), {});
  test::write_file(folder / "config.json", dump_json(config()));
}

}  // namespace

TEST_CASE("scales leave the process's memory after their check, and a layer's pages after it") {
  const test::ScratchFolder scratch;
  write_model(scratch.path());
  const auto resident = [&] { return test::mapped_resident_bytes(scratch.path().string()); };
  const ModelDir model_dir(scratch.path());
  const ModelConfig model = read_model_config(model_dir);
  const uint64_t before = resident();
  const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, model);
  const Weights weights(model_dir, model, &quantization);
  CHECK(quantization.matrices.size() == 7);
  constexpr uint64_t kScales = kSide * kSide / kGroup * 2;  // of one matrix; all are 1.8 MB
  CHECK(resident() < before + kScales);
  CHECK(as_float32(weights.rows(0, Role::kUp).parts).size() == kSide * kSide);
  CHECK(resident() > before + kScales);
  weights.drop(0);
  CHECK(resident() < before + kScales);
}

}  // namespace kvcal
