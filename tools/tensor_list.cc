#include "tensor_list.h"

#include <algorithm>
#include <map>

#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";

struct RoleWords {
  std::string_view role, kind;
};

RoleWords words_of(Role role) {
  switch (role) {
    case Role::kEmbedding:
      return {"embedding", "embeddings"};
    case Role::kPositionEmbedding:
      return {"position_embedding", "embeddings"};
    case Role::kFinalNorm:
      return {"final_norm", "norms"};
    case Role::kFinalNormBias:
      return {"final_norm_bias", "norms"};
    case Role::kLmHead:
      return {"lm_head", "lm_head"};
    case Role::kLmHeadBias:
      return {"lm_head_bias", "lm_head"};
    case Role::kInputNorm:
      return {"input_norm", "norms"};
    case Role::kInputNormBias:
      return {"input_norm_bias", "norms"};
    case Role::kAttentionOutputNorm:
      return {"attention_output_norm", "norms"};
    case Role::kMlpNorm:
      return {"mlp_norm", "norms"};
    case Role::kMlpNormBias:
      return {"mlp_norm_bias", "norms"};
    case Role::kMlpOutputNorm:
      return {"mlp_output_norm", "norms"};
    case Role::kQueryNorm:
      return {"query_norm", "norms"};
    case Role::kKeyNorm:
      return {"key_norm", "norms"};
    case Role::kQuery:
      return {"query", "attention"};
    case Role::kKey:
      return {"key", "attention"};
    case Role::kValue:
      return {"value", "attention"};
    case Role::kOutput:
      return {"output", "attention"};
    case Role::kQueryBias:
      return {"query_bias", "attention"};
    case Role::kKeyBias:
      return {"key_bias", "attention"};
    case Role::kValueBias:
      return {"value_bias", "attention"};
    case Role::kOutputBias:
      return {"output_bias", "attention"};
    case Role::kSinks:
      return {"sinks", "attention"};
    case Role::kQueryGate:
      return {"query_gate", "attention"};
    case Role::kQueryAndGate:
      return {"query_and_gate", "attention"};
    case Role::kQueryKeyValue:
      return {"query_key_value", "attention"};
    case Role::kQueryKeyValueBias:
      return {"query_key_value_bias", "attention"};
    case Role::kQueryDown:
      return {"query_down", "attention"};
    case Role::kQueryDownBias:
      return {"query_down_bias", "attention"};
    case Role::kQueryDownNorm:
      return {"query_down_norm", "norms"};
    case Role::kQueryUp:
      return {"query_up", "attention"};
    case Role::kLatent:
      return {"latent", "attention"};
    case Role::kLatentBias:
      return {"latent_bias", "attention"};
    case Role::kLatentNorm:
      return {"latent_norm", "norms"};
    case Role::kLatentUp:
      return {"latent_up", "attention"};
    case Role::kMixerIn:
      return {"mixer_in", "recurrent mixers"};
    case Role::kMixerInBias:
      return {"mixer_in_bias", "recurrent mixers"};
    case Role::kMixerGates:
      return {"mixer_gates", "recurrent mixers"};
    case Role::kMixerConv:
      return {"mixer_conv", "recurrent mixers"};
    case Role::kMixerConvBias:
      return {"mixer_conv_bias", "recurrent mixers"};
    case Role::kMixerStates:
      return {"mixer_states", "recurrent mixers"};
    case Role::kMixerStep:
      return {"mixer_step", "recurrent mixers"};
    case Role::kMixerStepNorm:
      return {"mixer_step_norm", "norms"};
    case Role::kMixerBNorm:
      return {"mixer_b_norm", "norms"};
    case Role::kMixerCNorm:
      return {"mixer_c_norm", "norms"};
    case Role::kMixerStepBias:
      return {"mixer_step_bias", "recurrent mixers"};
    case Role::kMixerDecay:
      return {"mixer_decay", "recurrent mixers"};
    case Role::kMixerSkip:
      return {"mixer_skip", "recurrent mixers"};
    case Role::kMixerNorm:
      return {"mixer_norm", "norms"};
    case Role::kMixerOut:
      return {"mixer_out", "recurrent mixers"};
    case Role::kMixerOutBias:
      return {"mixer_out_bias", "recurrent mixers"};
    case Role::kGate:
      return {"gate", "MLP"};
    case Role::kUp:
      return {"up", "MLP"};
    case Role::kDown:
      return {"down", "MLP"};
    case Role::kGateBias:
      return {"gate_bias", "MLP"};
    case Role::kUpBias:
      return {"up_bias", "MLP"};
    case Role::kDownBias:
      return {"down_bias", "MLP"};
    case Role::kGateUp:
      return {"gate_up", "MLP"};
    case Role::kRouter:
      return {"router", "routers"};
    case Role::kRouterBias:
      return {"router_bias", "routers"};
    case Role::kRouterCorrection:
      return {"router_correction", "routers"};
    case Role::kExpertGate:
      return {"expert_gate", "experts"};
    case Role::kExpertUp:
      return {"expert_up", "experts"};
    case Role::kExpertDown:
      return {"expert_down", "experts"};
    case Role::kExpertGateUp:
      return {"expert_gate_up", "experts"};
    case Role::kExpertGateBias:
      return {"expert_gate_bias", "experts"};
    case Role::kExpertUpBias:
      return {"expert_up_bias", "experts"};
    case Role::kExpertGateUpBias:
      return {"expert_gate_up_bias", "experts"};
    case Role::kExpertDownBias:
      return {"expert_down_bias", "experts"};
    case Role::kSharedGate:
      return {"shared_gate", "shared experts"};
    case Role::kSharedUp:
      return {"shared_up", "shared experts"};
    case Role::kSharedGateUp:
      return {"shared_gate_up", "shared experts"};
    case Role::kSharedDown:
      return {"shared_down", "shared experts"};
    case Role::kSharedExpertGate:
      return {"shared_expert_gate", "shared experts"};
  }
  KVCAL_CHECK(false);
  return {};
}

/// "weight_scale" or another word of an FP8 Linear; empty for any other tensor.
std::string_view scale_word(std::string_view name, const std::map<std::string, Role>& roles) {
  for (const std::string_view word :
       {"weight_scale", "input_scale", "weight_zero_point", "input_zero_point"})
    if (name.ends_with(word) &&
        roles.contains(std::string(name.substr(0, name.size() - word.size())) + "weight"))
      return word;
  return {};
}

/// Names of all tensors that the family may have, with their roles; those of absent ones too. A
/// name that stands for several has the role that it has in its layer.
std::map<std::string, Role> roles_of(const ModelConfig& config) {
  std::map<std::string, Role> roles;
  const auto add = [&](const TensorRow& row, const std::string& prefix) {
    const int64_t count = row.is_numbered() ? config.size_of(row.repeat) : 1;
    for (int64_t i = 0; i < count; ++i) {
      const std::string name = prefix + row.name_of(i);
      roles.emplace(name, row.role);
      if (!name.ends_with(kWeight)) continue;
      const std::string other = renamed_expert(name.substr(0, name.size() - kWeight.size()));
      if (!other.empty()) roles.emplace(other + std::string(kWeight), row.role);
    }
    for (const SplitRow& part : row.split)
      for (int64_t i = 0; i < config.size_of(row.repeat); ++i)
        roles.emplace(prefix + numbered(part.name, i), part.role);
  };
  for (const TensorRow& row : config.architecture->model_tensors)
    add(row, row.is_of_head() ? config.head_prefix : config.backbone_prefix);
  for (const bool wanted : {true, false})
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const TensorRow& row : config.architecture->layer_tensors) {
        const LayerConfig& own = config.layers[static_cast<size_t>(layer)];
        if (config.holds(row.conditions, &own) == wanted) add(row, config.layer_prefix(layer));
      }
  return roles;
}

}  // namespace

std::vector<ListedTensor> list_tensors(const ModelDir& model_dir, const ModelConfig& config) {
  constexpr std::string_view kBlockScale = "_scale_inv";
  const std::map<std::string, Role> roles = roles_of(config);
  const auto kv_scales = kv_scale_names(config);
  std::vector<ListedTensor> tensors;
  for (const std::string& name : model_dir.tensor_names()) {
    ListedTensor entry{name, "none", "not read", &model_dir.tensor(name)};
    if (const auto role = roles.find(name); role != roles.end()) {
      entry.role = words_of(role->second).role;
      entry.kind = words_of(role->second).kind;
    } else if (kv_scales.contains(name)) {
      entry.role = "kv_scale";
      entry.kind = "KV scales";
    } else if (name.ends_with(kBlockScale) &&
               roles.contains(name.substr(0, name.size() - kBlockScale.size()))) {
      entry.role = "block_scale";
      entry.kind = "block scales";
    } else if (const std::string_view word = scale_word(name, roles); !word.empty()) {
      entry.role = word;
      entry.kind = "FP8 scales";
    }
    tensors.push_back(std::move(entry));
  }
  return tensors;
}

Json tensor_kinds(const std::vector<ListedTensor>& tensors) {
  Json kinds = Json::object();
  for (const ListedTensor& entry : tensors) {
    Json& kind = kinds[entry.kind];
    if (kind.is_null()) kind = {{"count", 0}, {"bytes", 0}};
    kind["count"] = kind["count"].get<int64_t>() + 1;
    kind["bytes"] = kind["bytes"].get<uint64_t>() + entry.tensor->bytes.size();
  }
  return kinds;
}

}  // namespace kvcal
