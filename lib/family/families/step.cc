#include <algorithm>
#include <array>
#include <string>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

/// The numbers of "3,4,5" or [3, 4, 5].
std::vector<int64_t> numbers_of(const Json& list, std::string_view key) {
  std::vector<int64_t> numbers;
  std::string text = list.is_string() ? list.get<std::string>() : list.dump();
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == ' '; });
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const bool is_number = !word.empty() && word.size() < 6 &&
                           word.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) fail("key '", key, "' is ", list.dump(), ", expected numbers of layers");
    numbers.push_back(std::stoll(word));
    begin = end + 1;
  }
  return numbers;
}

/// The lists of published files go on for the layers of multi-token prediction.
void drop_prediction_layers(Json& config, int64_t layers) {
  const int64_t more = optional_int(config, "num_nextn_predict_layers").value_or(0);
  constexpr std::array<std::string_view, 6> kLists{"layer_types",   "mlp_layer_types",
                                                   "swiglu_limits", "swiglu_limits_shared",
                                                   "rope_theta",    "partial_rotary_factors"};
  for (const std::string_view key : kLists)
    if (const auto list = config.find(key);
        list != config.end() && list->is_array() && std::ssize(*list) == layers + more)
      list->erase(list->begin() + layers, list->end());
}

/// A rope for each type of layer: that of its first layer. rope_scaling is that of layers without a
/// window.
void write_ropes_by_type(Json& config, int64_t layers) {
  const Json* said = find_field(config, "rope_parameters");
  const Json all_full = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
  const Json* types = find_field(config, "layer_types");
  if (!types || !types->is_array()) types = &all_full;
  Json ropes = Json::object();
  bool is_said = said != nullptr;
  for (size_t i = 0; i < types->size(); ++i) {
    if (!types->at(i).is_string() || ropes.contains(types->at(i).get<std::string>())) continue;
    const auto type = types->at(i).get<std::string>();
    is_said = is_said && find_field(*said, type);
    Json& rope = ropes[type] = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
    for (const auto& [list, key] : {std::pair("rope_theta", "rope_theta"),
                                    {"partial_rotary_factors", "partial_rotary_factor"}}) {
      const Json* value = find_field(config, list);
      if (!value) continue;
      if (value->is_array()) check_one_a_layer(list, *value, std::ssize(*types));
      rope[key] = value->is_array() ? value->at(i) : *value;
    }
    if (const Json* scaling = find_field(config, "rope_scaling");
        scaling && scaling->is_object() && type == "full_attention")
      rope.update(*scaling);
  }
  if (!is_said) config["rope_parameters"] = std::move(ropes);
  for (const char* key : {"rope_theta", "partial_rotary_factors", "rope_scaling"})
    config.erase(key);
}

/// Source: transformers 5.24, models/step3p7 `Step3p7TextConfig.__post_init__`.
void prepare_step(Json& config) {
  const int64_t layers = optional_int(config, "num_hidden_layers").value_or(0);
  if (layers < 1 || layers > kMaxLayers) return;  // which is refused where it is read
  drop_prediction_layers(config, layers);
  const Json* enumerated = find_field(config, "moe_layers_enum");
  if (enumerated && !find_field(config, "mlp_layer_types")) {
    std::vector<std::string> words(static_cast<size_t>(layers), "dense");
    for (const int64_t layer : numbers_of(*enumerated, "moe_layers_enum"))
      if (layer < layers) words[static_cast<size_t>(layer)] = "sparse";
    config["mlp_layer_types"] = words;
  }
  write_ropes_by_type(config, layers);
  config["hidden_act"] = "silu";  // whatever it says
}

/// Limits of the activated gates, by layer.
void resolve_step(const Json& config, ModelConfig& resolved) {
  const auto read = [&](std::string_view key, float LayerConfig::*field) {
    const Json* list = find_field(config, key);
    if (!list || (list->is_array() && list->empty())) return;
    check_one_a_layer(key, *list, resolved.num_hidden_layers);
    for (size_t i = 0; i < list->size(); ++i)
      if (!list->at(i).is_null())
        resolved.layers[i].*field = static_cast<float>(number_at(*list, i, key));
  };
  read("swiglu_limits", &LayerConfig::expert_limit);
  read("swiglu_limits_shared", &LayerConfig::mlp_limit);
  resolved.gates_whole_heads = true;
  resolved.norm_topk_prob = true;
}

/// moe.{gate,up,down}_proj, each one tensor for all experts.
TensorRows step_expert_rows() {
  const Condition moe = when(&LayerConfig::is_moe);
  const auto stacked = [&](Role role, std::string_view name, std::string_view one) {
    return TensorRow{role, name, {}, {moe}, Layout::kOutIn, Dim::kExperts, {{role, one}}};
  };
  return {
      {kRouter, "moe.gate.weight", {}, {moe}},
      {kRouterCorrection, "moe.router_bias", {}, {moe}},
      stacked(kExpertGate, "moe.gate_proj.weight", "moe.experts.{}.gate_proj.weight"),
      stacked(kExpertUp, "moe.up_proj.weight", "moe.experts.{}.up_proj.weight"),
      stacked(kExpertDown, "moe.down_proj.weight", "moe.experts.{}.down_proj.weight"),
  };
}

constexpr FamilyRow kRows[] = {
    // Gates a head, more heads of Q in layers with a window, limits of activated gates. Source:
    // transformers 5.24, models/step3p7 and conversion_mapping.py.
    {"step3p5", "", "Step3p7Attention", "Step 3.5 Flash, text model of Step 3.7 Flash",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "n_routed_experts": 288, "num_experts_per_tok": 8, "moe_intermediate_size": 1280,
         "share_expert_dim": 1280, "first_k_dense_replace": 3, "partial_rotary_factor": 1.0})";
       family.text_defaults = R"({"vocab_size": 128815, "hidden_size": 4096,
         "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64,
         "max_position_embeddings": 128000})";
       family.aliases = {
           {"num_key_value_heads", "num_attention_groups"},
           {"num_experts", "moe_num_experts"},
           {"num_experts", "n_routed_experts"},
           {"num_experts_per_tok", "moe_top_k"},
           {"shared_expert_intermediate_size", "share_expert_dims"},
           {"shared_expert_intermediate_size", "share_expert_dim"},
           {"num_sliding_attention_heads", "attention_other_setting.num_attention_heads"}};
       family.switches = attention_bias_switches();
       family.numbers = {{"moe_router_scaling_factor", &ModelConfig::routed_scaling_factor},
                         {"query_pre_attn_scalar", &ModelConfig::softmax_scale,
                          NumberReading::kInverseSquareRoot}};
       family.fixed = {{"gating", "true"},
                       {"use_head_wise_attn_gate", "true"},
                       {"use_moe_router_bias", "true"},
                       {"norm_expert_weight", "true"},
                       {"moe_router_activation", "\"sigmoid\""},
                       {"yarn_only_types", R"(["full_attention"])"},
                       {"use_bidirectional_attention", "false"},
                       {"mlp_bias", "false"}};
       family.known_keys = {"swiglu_limits",
                            "swiglu_limits_shared",
                            "moe_layers_enum",
                            "mtp_layer_types",
                            "mtp_mlp_layer_types",
                            "need_fp32_gate",
                            "att_impl_type",
                            "attention_other_setting.attention_type",
                            "attention_other_setting.head_dim",
                            "attention_other_setting.num_attention_groups"};
       family.prepare = prepare_step;
       family.resolve = resolve_step;
       family.norm_adds_one = true;
       family.has_query_gate = true;
       family.has_window_query_heads = true;
       family.has_prediction_layers = true;
       family.sliding_window = SlidingWindow::kTyped;
       family.expert_layers = ExpertLayers::kTyped;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors = joined(
           {pre_norm_rows(),
            attention_rows(),
            head_norm_rows(),
            {{kQueryGate, "self_attn.g_proj.weight", {Dim::kQueryGateWidth, Dim::kHidden}}},
            mlp_rows(),
            step_expert_rows(),
            shared_expert_rows({"share_expert.gate_proj.weight", "share_expert.up_proj.weight",
                                "share_expert.down_proj.weight"})});
     }},
};

}  // namespace

Lineage step_lineage() {
  return kRows;
}

}  // namespace kvcal
