#include <algorithm>

#include "family/config_reader.h"
#include "family/tensor_tables.h"

namespace kvcal {

using enum Role;

namespace {

TensorRows layer_rows() {
  const Condition biased = when(&ModelConfig::attention_bias);
  return {
      {kInputNorm, "attention_norm.weight"},
      {kQueryKeyValue, "attention.wqkv.weight"},
      {kQueryKeyValueBias, "attention.wqkv.bias", {}, {biased}},
      {kOutput, "attention.wo.weight", {Dim::kHidden, Dim::kQueryWidth}},
      {kOutputBias, "attention.wo.bias", {}, {biased}},
      {kMlpNorm, "ffn_norm.weight"},
      {kGate, "feed_forward.w1.weight"},
      {kUp, "feed_forward.w3.weight"},
      {kDown, "feed_forward.w2.weight"},
  };
}

/// With text alone the layers whose K and V are the image's do nothing: no gate, no MLP.
void skip_cross_attention(const Json& json, ModelConfig& config) {
  std::vector<int64_t> layers{3, 8, 13, 18, 23, 28, 33, 38};
  const Json* list = find_field(json, "cross_attention_layers");
  if (list) {
    layers.clear();
    if (!list->is_array()) fail_kind("cross_attention_layers", "a list of layers", *list);
    for (const Json& layer : *list) {
      if (!layer.is_number_integer() || layer.get<int64_t>() < 0)
        fail("key 'cross_attention_layers' holds ", layer.dump(), ", expected numbers of layers");
      layers.push_back(layer.get<int64_t>());
    }
  }
  for (const int64_t number : layers) {
    if (number >= std::ssize(config.layers)) continue;
    LayerConfig& layer = config.layers[static_cast<size_t>(number)];
    layer.has_attention = layer.has_mixer = layer.has_mlp = false;
  }
}

TensorRows feed_forward_rows_of_llama4() {
  return joined({
      with(unless(&LayerConfig::is_moe), {{kGate, "feed_forward.gate_proj.weight"},
                                          {kUp, "feed_forward.up_proj.weight"},
                                          {kDown, "feed_forward.down_proj.weight"}}),
      stacked_expert_rows(
          {"feed_forward.router.weight",
           {},
           "feed_forward.experts.gate_up_proj",
           "feed_forward.experts.down_proj",
           {"feed_forward.experts.{}.gate_proj.weight", "feed_forward.experts.{}.up_proj.weight",
            "feed_forward.experts.{}.down_proj.weight"}},
          Layout::kInOut),
      shared_expert_rows({"feed_forward.shared_expert.gate_proj.weight",
                          "feed_forward.shared_expert.up_proj.weight",
                          "feed_forward.shared_expert.down_proj.weight"}),
  });
}

/// Sets chunks by layer_types, or where layers have positions.
void resolve_chunks(const Json& config, ModelConfig& resolved) {
  const Json* found = find_field(config, "attention_chunk_size");
  if (!found && config.contains("attention_chunk_size")) return;  // null
  const int64_t chunk = found ? required_int(config, "attention_chunk_size") : 8192;
  if (chunk < 1 || chunk > kMaxPositions)
    fail("key 'attention_chunk_size' is ", chunk, ", expected 1 to ", kMaxPositions, ", or null");
  const Json* types = find_field(config, "layer_types");
  if (types && (!types->is_array() || types->size() != resolved.layers.size()))
    fail("key 'layer_types' is ", types->dump(), ", expected a word for each of ",
         counted(resolved.layers.size(), "layer"));
  for (size_t i = 0; i < resolved.layers.size(); ++i) {
    LayerConfig& layer = resolved.layers[i];
    bool is_chunked = layer.rope != kNoRope;
    if (types) {
      const Json& word = types->at(i);
      if (word != "chunked_attention" && word != "full_attention")
        fail("key 'layer_types' holds ", word.dump(), " for layer ", i,
             ", expected chunked_attention or full_attention");
      is_chunked = word == "chunked_attention";
    }
    layer.chunk = is_chunked ? chunk : 0;
  }
}

/// Without positions, queries grow by 1 + attn_scale · ln(1 + floor((position + 1) / floor_scale)).
void resolve_growth(const Json& config, ModelConfig& resolved) {
  if (!optional_bool(config, "attn_temperature_tuning").value_or(true)) return;
  RopeConfig growth;
  growth.unturned_dim = resolved.head_dim;
  growth.query_beta = number_of(config, "attn_scale").value_or(0.1);
  growth.query_growth_shift = 1;
  growth.original_max_position_embeddings = optional_int(config, "floor_scale").value_or(8192);
  if (growth.original_max_position_embeddings < 1 ||
      growth.original_max_position_embeddings > kMaxPositions)
    fail("key 'floor_scale' is ", growth.original_max_position_embeddings, ", expected 1 to ",
         kMaxPositions);
  const auto number = std::ssize(resolved.ropes);
  for (LayerConfig& layer : resolved.layers)
    if (layer.rope == kNoRope) layer.rope = number;
  resolved.ropes.push_back(growth);
}

/// lm_head may lack the rows of the last ids, which are read and never predicted.
void resolve_output_vocab(const Json& config, ModelConfig& resolved) {
  const auto rows = optional_int(config, "output_vocab_size");
  if (!rows) return;
  if (*rows < 1 || *rows > resolved.vocab_size)
    fail("key 'output_vocab_size' is ", *rows, ", expected 1 to vocab_size ", resolved.vocab_size);
  if (resolved.tie_word_embeddings && *rows != resolved.vocab_size)
    fail("key 'output_vocab_size' is ", *rows, " and lm_head is the embedding of ",
         counted(resolved.vocab_size, "id"), "; expected tie_word_embeddings false");
  resolved.output_vocab_size = *rows;
}

/// Attention that computes windows itself asks use_sliding_window, too.
void require_used_windows(const Json& config, ModelConfig& resolved) {
  const bool is_used = optional_bool(config, "use_sliding_window").value_or(false);
  if (!is_used && std::ranges::any_of(resolved.layers, &LayerConfig::has_window))
    fail("key 'layer_types' gives layers a window and use_sliding_window is not true");
}

/// moe_layers takes precedence over the step.
void resolve_experts(const Json& config, ModelConfig& resolved) {
  const Json* list = find_field(config, "moe_layers");
  if (!list) return;
  if (!list->is_array()) fail_kind("moe_layers", "a list of layers", *list);
  for (size_t i = 0; i < resolved.layers.size(); ++i)
    resolved.layers[i].is_moe = std::ranges::find(*list, Json(i)) != list->end();
}

void resolve_llama4_layers(const Json& config, ModelConfig& resolved) {
  for (LayerConfig& layer : resolved.layers)
    layer.norms_heads = resolved.has_qk_norm && layer.rope != kNoRope;
  resolve_experts(config, resolved);
  resolve_chunks(config, resolved);
  resolve_growth(config, resolved);
}

/// Published names of the stacked experts, and those that transformers saves.
constexpr StackedNames kPublished{"mlp.router.weight", "mlp.router", "mlp.experts.fc1.weight",
                                  "mlp.experts.fc2.weight", kSplitExperts};
constexpr StackedNames kSaved{"mlp.router.weight", "mlp.router", "mlp.experts.gate_up_proj",
                              "mlp.experts.down_proj", kSplitExperts};

constexpr FamilyRow kRows[] = {
    {"llama", "", "LlamaAttention",
     "Llama 2, 3, 3.1, 3.2, 3.3, Yi, TinyLlama, SmolLM 1 and 2, DeepSeek-R1 distills",
     [](Architecture& family) {
       family.text_defaults = R"({"vocab_size": 32000, "hidden_size": 4096,
         "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
         "max_position_embeddings": 2048})";
       family.switches = bias_switches();
     }},
    // Llama within Emu3.
    {"emu3", "llama", "Emu3Attention", "text model of Emu3",
     [](Architecture& family) {
       family.model_types = {"emu3_text_model"};
       family.defaults = R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1e6})";
       family.text_defaults.merge(R"({"vocab_size": 184622, "intermediate_size": 14336,
         "max_position_embeddings": 9216})");
     }},
    // Llama with other defaults.
    {"iquestcoder", "", "LlamaAttention", "IQuest-Coder",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5})";
       family.switches = bias_switches();
       family.fixed = {{"clip_qkv", "null"}, {"use_sliding_window", "false"}};
     }},
    {"seed_oss", "", "SeedOssAttention", "Seed-OSS",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "attention_bias": true})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"attention_out_bias", &ModelConfig::output_bias},
                          {"mlp_bias", &ModelConfig::mlp_bias}};
     }},
    // Source: modeling_internlm3.py of the published checkpoints; transformers 5.24 saves Llama's
    // keys.
    {"internlm3", "", "InternLM3Attention", "InternLM 3",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5})";
       family.aliases = {{"attention_bias", "qkv_bias"}, {"mlp_bias", "bias"}};
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"mlp_bias", &ModelConfig::output_bias},
                          {"mlp_bias", &ModelConfig::mlp_bias}};
     }},
    // Llama whose MLP is a squared ReLU without a gate.
    {"arcee", "", "ArceeAttention", "AFM 4.5B",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "relu2", "rms_norm_eps": 1e-5})";
       family.switches = bias_switches();
       family.layer_tensors = joined({pre_norm_rows(), attention_rows(), plain_mlp_rows()});
     }},
    // xIELU, whose numbers each layer holds, without a gate. Source: transformers 5.23,
    // models/apertus.
    {"apertus", "", "ApertusAttention", "Apertus 8B, 70B",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "xielu", "rms_norm_eps": 1e-5, "rope_theta": 12000000.0,
         "max_position_embeddings": 65536, "rope_parameters": {"rope_type": "llama3",
         "rope_theta": 12000000.0, "factor": 8.0, "original_max_position_embeddings": 8192,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0}})";
       family.switches = attention_bias_switches();
       family.fixed = {{"hidden_act", "\"xielu\""}};
       family.known_keys = {"post_norm", "qk_norm"};
       family.layer_tensors = joined({attention_rows(),
                                      head_norm_rows(),
                                      {{kInputNorm, "attention_layernorm.weight"},
                                       {kMlpNorm, "feedforward_layernorm.weight"},
                                       {kUp, "mlp.up_proj.weight"},
                                       {kDown, "mlp.down_proj.weight"},
                                       {kActivationAlphaP, "mlp.act_fn.alpha_p"},
                                       {kActivationAlphaN, "mlp.act_fn.alpha_n"},
                                       {kActivationBeta, "mlp.act_fn.beta"},
                                       {kActivationEps, "mlp.act_fn.eps"}}});
     }},
    // Apertus with codes of images and sounds in its vocabulary, of which lm_head may lack rows.
    // Source: transformers 5.24, models/apertus1p5.
    {"apertus1p5", "apertus", "ApertusAttention",
     "Apertus 1.5, also the text part of multimodal checkpoints",
     [](Architecture& family) {
       family.model_types = {"apertus1p5_text"};
       family.defaults.merge(R"({"vocab_size": 266752})");
       family.text_defaults = R"({"hidden_size": 4096, "intermediate_size": 14336,
         "num_hidden_layers": 32, "num_attention_heads": 32})";
       family.prefixes = {{"model."}, {"model.language_model."}};
       family.known_keys = {"post_norm", "qk_norm", "output_vocab_size"};
       family.resolve = resolve_output_vocab;
     }},
    {"helium", "", "HeliumAttention", "Helium",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
         "rope_theta": 100000})";
       family.switches = {{"attention_bias", &ModelConfig::attention_bias},
                          {"mlp_bias", &ModelConfig::mlp_bias}};
       family.rope_is_interleaved = true;
     }},
    {"cwm", "", "CwmAttention", "CWM",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 1e6, "sliding_window": 8192, "sliding_window_pattern": 4,
         "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "high_freq_factor": 4.0,
         "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}})";
       family.switches = {{"mlp_bias", &ModelConfig::mlp_bias}};
       family.sliding_window = SlidingWindow::kPatternFromFirst;
     }},
    // Llama whose every fourth layer has no positions.
    {"smollm3", "", "SmolLM3Attention", "SmolLM3",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 4, "rope_theta": 2e6,
         "tie_word_embeddings": true, "no_rope_layer_interval": 4})";
       family.switches = bias_switches();
       family.known_keys = {"max_window_layers"};
       family.resolve = require_used_windows;
       family.positions = Positions::kRopeWhereListed;
       family.sliding_window = SlidingWindow::kTypedOrUnturned;
     }},
    // Llama with a norm before the last Linear of attention and of the MLP.
    {"bitnet", "", "BitNetAttention", "BitNet b1.58 in 16 bits",
     [](Architecture& family) {
       family.defaults = R"({"num_key_value_heads": 5, "hidden_act": "relu2",
         "rms_norm_eps": 1e-5, "rope_theta": 500000, "max_position_embeddings": 2048})";
       family.switches = attention_bias_switches();
       family.layer_tensors = joined({pre_norm_rows(),
                                      attention_rows(),
                                      {{kAttendedNorm, "self_attn.attn_sub_norm.weight"},
                                       {kInnerNorm, "mlp.ffn_sub_norm.weight"}},
                                      mlp_rows()});
     }},
    // Llama with one matrix for Q, K and V. Source: modeling_internlm2.py of the published
    // checkpoints.
    {"internlm2", "", "InternLM2Attention", "InternLM 2, 2.5",
     [](Architecture& family) {
       family.defaults = R"({"bias": true})";
       family.switches = {{"bias", &ModelConfig::attention_bias}};
       family.fused_qkv = FusedQkv::kByGroup;
       family.attention_module = "attention";
       family.model_tensors = model_rows("tok_embeddings.weight", "norm.weight", "output.weight");
       family.layer_tensors = layer_rows();
     }},
    // Llama with layers that attend to the image.
    {"mllama", "emu3", "MllamaTextSelfAttention", "text model of Llama 3.2 Vision",
     [](Architecture& family) {
       family.model_types = {"mllama_text_model"};
       family.defaults.merge(R"({"rope_theta": 500000})");
       family.text_defaults.merge(R"({"vocab_size": 128256, "num_hidden_layers": 40,
         "max_position_embeddings": 131072})");
       family.switches = {};
       family.fixed = {{"tie_word_embeddings", "false"}};
       family.known_keys = {"cross_attention_layers"};
       family.resolve = skip_cross_attention;
       family.extra_embeddings = 8;
       family.model_tensors =
           joined({{{kEmbedding, "embed_tokens.weight", {Dim::kEmbeddingRows, Dim::kHidden}}},
                   {{kFinalNorm, "norm.weight"}, {kLmHead, "lm_head.weight"}}});
       family.layer_tensors = with(when(&LayerConfig::has_attention),
                                   joined({pre_norm_rows(), attention_rows(), mlp_rows()}));
     }},
    // Chunks in layers with positions; queries that grow in those without.
    {"llama4", "", "Llama4TextAttention", "Llama 4 Scout, Maverick",
     [](Architecture& family) {
       family.model_types = {"llama4_text"};
       family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
         "rope_theta": 500000, "num_local_experts": 16, "num_experts_per_tok": 1,
         "n_shared_experts": 1, "interleave_moe_layer_step": 1, "no_rope_layer_interval": 4,
         "use_qk_norm": true})";
       family.aliases = {{"moe_intermediate_size", "intermediate_size"},
                         {"intermediate_size", "intermediate_size_mlp"},
                         {"num_experts", "num_local_experts"},
                         {"decoder_sparse_step", "interleave_moe_layer_step"}};
       family.switches = attention_bias_switches({{"use_qk_norm", &ModelConfig::has_qk_norm}});
       family.known_keys = {"attention_chunk_size", "attn_temperature_tuning",
                            "attn_scale",           "floor_scale",
                            "moe_layers",           "layer_types",
                            "for_llm_compressor"};
       family.resolve = resolve_llama4_layers;
       family.plain_norms = {kQueryNorm, kKeyNorm};
       family.rope_is_interleaved = true;
       family.weighs_expert_inputs = true;
       family.norms_after_rope = true;
       family.expert_layers = ExpertLayers::kEveryStep;
       family.positions = Positions::kRopeWhereListed;
       family.router_score = RouterScore::kSigmoid;
       family.layer_tensors =
           joined({pre_norm_rows(), attention_rows(), feed_forward_rows_of_llama4()});
     }},
    // Llama with experts, whose router takes the softmax of the chosen alone.
    {"aria", "llama", "AriaTextAttention", "text model of Aria",
     [](Architecture& family) {
       family.model_types = {"aria_text"};
       family.defaults = R"({"moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2})";
       family.text_defaults.merge(R"({"intermediate_size": 4096})");
       family.aliases = {{"num_experts", "moe_num_experts"},
                         {"num_experts_per_tok", "moe_topk"},
                         {"n_shared_experts", "moe_num_shared_experts"},
                         {"moe_intermediate_size", "intermediate_size"}};
       family.fixed = {{"hidden_act", "\"silu\""}};  // that of the routed experts, always
       family.resolve = [](const Json&, ModelConfig& config) { config.norm_topk_prob = true; };
       family.expert_layers = ExpertLayers::kAll;
       family.layer_tensors = joined(
           {pre_norm_rows(), attention_rows(),
            with(unless(&ModelConfig::has_saved_names),
                 stacked_expert_rows(kPublished, Layout::kInOut)),
            with(when(&ModelConfig::has_saved_names), stacked_expert_rows(kSaved, Layout::kInOut)),
            shared_expert_rows()});
     }},
    // Norms without weights, also of the embedding and of turned Q and K.
    {"nanochat", "", "NanoChatAttention", "nanochat",
     [](Architecture& family) {
       family.defaults = R"({"hidden_act": "relu2", "max_position_embeddings": 2048,
         "final_logit_softcapping": 15.0})";
       family.switches = attention_bias_switches();
       family.numbers = {{"final_logit_softcapping", &ModelConfig::logits_softcap}};
       family.norms_embedding = true;
       family.plain_norms = {kInputNorm, kMlpNorm, kFinalNorm, kQueryNorm, kKeyNorm};
       family.rope_turns_back = true;
       family.norms_after_rope = true;
       family.model_tensors = {
           {kEmbedding, "embed_tokens.weight"},
           {kLmHead, "lm_head.weight", {}, {unless(&ModelConfig::tie_word_embeddings)}}};
       family.layer_tensors =
           joined({attention_rows(), plain_mlp_rows("mlp.fc1.weight", "mlp.fc1.bias",
                                                    "mlp.fc2.weight", "mlp.fc2.bias")});
     }},
};

}  // namespace

Lineage llama_lineage() {
  return kRows;
}

}  // namespace kvcal
