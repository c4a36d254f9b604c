"""What engines_answers.py makes of engines' recorded answers (tests/fixtures/engines): for each engine its explanations, in the order in which they are tried.

An explanation is of checkpoints: of quantization methods ("modelopt*": all that begin so), of names of scales (endings, or beginnings, which end in a dot), of
keys of config.json (settings), of weights that are quantized, of a group of attention. Which model types it is of, no one says: it is of a type where every recorded answer about such a
checkpoint of the type, which no explanation before it is of, is what its effect foretells, and where every pattern of `seen` is in one of these answers, and
every pattern of `elsewhere` in one of all answers about the type, each written "CASE: ANSWER: REASON". Where records do not tell two explanations apart, `only`
names the types whose model files were read, and `unless` those for which another one holds. `read` are types of which such checkpoints were not recorded: what is said of them was tried otherwise.

effect, what becomes of the scales:
  no model                 the engine does not start, with scales or without
  refused                  it does not start with them
  refused without groups   it does not start where config_groups are empty
  sixteen bits             the cache keeps 16 bits, whatever is asked for
  ones                     the engine holds 1.0
  ones when asked          the cache keeps 16 bits, unless FP8 is asked for, then 1.0
  refused when asked       the cache keeps 16 bits; where FP8 is asked for it does not start
  by rules when asked      the cache keeps 16 bits, unless FP8 is asked for, then the scales
  by rules                 the scales are held, by the rules for all models
"""
OUTPUT_SCALES = ["_proj.output_scale"]
PROJECTIONS = ["_proj.k_scale", "_proj.v_scale", "_proj.output_scale"]
INPUTS_OF_PROJECTIONS = ["_proj.k_scale", "_proj.v_scale"]
PLAIN = [".k_scale", ".v_scale"]
INNER_MODEL = ["model.language_model."]
COMPRESSED, MODELOPT = ["compressed-tensors"], ["modelopt*"]


def explanation(name, effect, why="", seen=(), elsewhere=(), only=(), unless=(), read=(), **when):
    """when: methods, names, settings, needs_weights, needs_attention; and lacks_parameters: the attention has no parameters of scales, so that kv_cache_scales.json can be given
    beside scales of the checkpoint."""
    seen, elsewhere = ([patterns] if isinstance(patterns, str) else list(patterns) for patterns in (seen, elsewhere))
    return dict(name=name, effect=effect, why=why, seen=seen, elsewhere=elsewhere, only=list(only), unless=list(unless), read=list(read), when=when)


def setting(key, *value, is_not=False):
    """value: of JSON, of config.json or its text_config; none: any but null and false. is_not: any but this."""
    return dict(key=key) | dict(zip(["value"], value)) | (dict(is_not=True) if is_not else {})


DROPPED = "its loader drops the scales, and the cache is FP8 with 1.0"
STOPS_AT_PROJECTIONS = "its loader stops at scales below k_proj and v_proj (KeyError)"
STOPS_AT_NAMES = "its loader stops at the names of the scales (KeyError)"
NO_PARAMETERS = "its attention is made without the quantization config, so no scale of a checkpoint reaches the cache, which is FP8 with 1.0"
FUSED_LATENT = "its loader fuses q_a_proj and kv_a_proj_with_mqa, and stops at the two scales of their weights"
CHOSEN_KEYS = "it keeps 16 bits for attention of chosen tokens (DSA) unless asked for FP8, and then reads scales of k_proj and v_proj alone"
TAKEN_FOR_OTHERS = "its loader takes the scales for others that must be 1.0 (AssertionError)"
EXPERTS_STOP = "its loader stops at the experts in this form"

# Source: SGLang 0.5.23, srt/models/*.py, each one's load_weights. An attention that is made with the quantization config warns of schemes of heads.
NOT_WARNED = r"^head: 16-bit: (Found|$)"
FILE_IS_READ = r"^scales-json@fp8: loaded"
HAS_PARAMETERS = r"cannot assign 'float' as parameter"
LATENT_NAMES = r": model\.layers\S+ not found in params_dict\.$"
SGLANG = [
    explanation("asks for route_norm", "no model", "its model file asks config.json for route_norm, which transformers does not write (AttributeError)",
                settings=[setting("route_norm", None)], seen="no attribute 'route_norm'"),
    explanation("no Mistral 4", "no model", "it has no Mistral 4, which this Mistral 3 has inside (ValueError)", settings=[setting("text_config.model_type", "mistral4")],
                seen="corresponding model for config class `Mistral4Config`"),
    explanation("ModelOpt's config alone", "refused", "its model file takes a quantization config of ModelOpt's kind alone (KeyError: modelopt_quant_config)",
                methods=[*COMPRESSED, "fp8", "quark", *MODELOPT], seen="modelopt_quant_config"),
    explanation("stops at names", "refused", STOPS_AT_NAMES, seen=r"KeyError: '\S*\.(k_scale|k_layernorm\S*)' "),
    explanation("asks config.json", "no model", "its model file asks config.json for a key that such models do not have (AttributeError)",
                seen=r"'(Cohere2|Gemma4Vision)Config' object has no attribute"),
    explanation("one head size", "no model", "it asks config.json for one head size of all layers, but of a multimodal checkpoint",
                seen="AmbiguousGlobalPerLayerAttributeError"),
    explanation("no implementation", "no model", "SGLang 0.5.23 has no implementation, and its Transformers backend does not run the model"),
    explanation("backend stops", "refused", "its Transformers backend stops at the names of the scales", seen="No module or parameter named"),
    explanation("takes 16 bits for FP8", "refused", "its loader takes weights of 16 bits for FP8 ones", needs_weights=True, seen="Downcasting not allowed"),
    explanation("names of transformers 5", "refused", "its loader stops at the tensor names of transformers 5", names=INNER_MODEL),
    explanation("config has no names", "refused", "its loader asks the quantization config for get_cache_scale, which it does not have (AttributeError)",
                methods=["fp8", *MODELOPT, "quark"], seen="no attribute 'get_cache_scale'"),
    explanation("stops at names, not kv_scale", "refused", STOPS_AT_NAMES, names=[".k_scale", ".v_scale", ".output_scale"]),
    explanation("stops at projections", "refused", STOPS_AT_PROJECTIONS, names=PROJECTIONS, seen="KeyError"),
    explanation("stops at these projections", "refused", STOPS_AT_PROJECTIONS, methods=COMPRESSED, names=PROJECTIONS, seen="KeyError"),
    explanation("no quantization config", "ones when asked", "its attention is made without the quantization config: the cache keeps 16 bits unless asked for FP8, and "
                "then its scales are 1.0", seen=r"^compressed-tensors: .*not found the expected name"),
    explanation("keeps no config", "ones when asked", "its model file keeps no quantization config, so the cache keeps 16 bits unless asked for FP8, and its loader drops "
                "the scales", seen=r"^compressed-tensors: .*Parameter model\.layers\S+ not found in params_dict"),
    explanation("inner cache not seen, 1.0", "ones when asked", "it does not see the FP8 cache of a text model inside another one, and where it is asked for its scales are "
                "1.0", only=["glm4v", "glm_ocr", "qwen2_5_vl"]),
    explanation("inner cache not seen", "by rules when asked", "it does not see the FP8 cache of a text model inside another one", methods=COMPRESSED + MODELOPT, only=["minicpmv4_6", "minicpmv4_7", "mistral3"]),
    explanation("fused latent weights", "refused", FUSED_LATENT, settings=[setting("q_lora_rank")], needs_weights=True,
                seen=r"cannot be concatenated|weight\.ndim=0, cat_dim=0"),
    explanation("fused latent weights, compressed", "refused", FUSED_LATENT, methods=COMPRESSED, settings=[setting("q_lora_rank")], needs_weights=True,
                seen=r"loaded_weight\.shape=torch\.Size\(\[2\]\)"),
    explanation("experts stop at FP8", "refused", "its loader of experts stops at the scales of FP8 weights (KeyError)", needs_weights=True, seen=r"KeyError.*experts\S*input_scale"),
    explanation("stops at FP8 shapes", "refused", "its loader stops at the shape of FP8 weights' scales (AssertionError)", needs_weights=True, seen="Shape mismatch"),
    explanation("weights in this form have no parameters", "ones", NO_PARAMETERS, methods=MODELOPT, needs_weights=True, lacks_parameters=True,
                elsewhere=[NOT_WARNED, "Expected 2D tensors"]),
    explanation("experts stop", "refused", EXPERTS_STOP, methods=MODELOPT, seen="Expected 2D tensors"),
    explanation("experts stop at FP8 biases", "refused", EXPERTS_STOP, methods=["quark"], needs_weights=True, seen="KeyError.*weight_bias"),
    explanation("takes scales of weights for others", "refused", TAKEN_FOR_OTHERS, needs_weights=True, seen=r"Expected 1\.0\S* got \S+ in skipped model\.hyper"),
    explanation("takes these scales for others", "refused", TAKEN_FOR_OTHERS, names=[".kv_scale", *OUTPUT_SCALES], seen="Expected 1.0", only=["qwen4_exp"]),
    explanation("ModelOpt's names alone", "by rules", methods=MODELOPT, names=INPUTS_OF_PROJECTIONS, elsewhere="Expected 1.0"),
    explanation("takes scales for others", "refused", TAKEN_FOR_OTHERS, seen="Expected 1.0"),
    explanation("chosen keys, own names", "by rules when asked", CHOSEN_KEYS, names=INPUTS_OF_PROJECTIONS, elsewhere=LATENT_NAMES),
    explanation("chosen keys", "ones when asked", CHOSEN_KEYS, elsewhere=LATENT_NAMES),
    explanation("latent, own names", "by rules", names=INPUTS_OF_PROJECTIONS, elsewhere=LATENT_NAMES),
    explanation("latent", "ones", DROPPED, elsewhere=LATENT_NAMES),
    explanation("drops, takes a file", "ones", DROPPED, elsewhere=[FILE_IS_READ, HAS_PARAMETERS]),
    explanation("no parameters, takes a file", "ones", NO_PARAMETERS, elsewhere=FILE_IS_READ, lacks_parameters=True),
    explanation("drops", "ones", DROPPED, only=["cohere2_moe", "glm4_moe_lite", "persimmon"]),
    explanation("no parameters", "ones", NO_PARAMETERS, seen=r"^compressed-tensors: lost", elsewhere=[NOT_WARNED, r"^compressed-tensors\+scales-json"], lacks_parameters=True),
    explanation("plain names without parameters", "ones when asked", NO_PARAMETERS, names=PLAIN, seen=NOT_WARNED),
    explanation("no parameters, no file tried", "ones", NO_PARAMETERS, seen=[r"^compressed-tensors: lost", NOT_WARNED], unless=["qwen4_exp"]),
    explanation("drops, with a warning", "ones", DROPPED, seen=r"^compressed-tensors: lost"),
    explanation("drops projections", "ones", DROPPED, methods=[*MODELOPT, "quark"], names=PROJECTIONS, seen="^modelopt: lost"),
    explanation("drops output scales", "ones", DROPPED, names=OUTPUT_SCALES),
]

# Source: vLLM 0.32, models/*.py; of latent caches: `CompressedTensorsConfig` and `Fp8Config` give MLAAttention no KV cache method, and of ModelOpt checkpoints,
# which get one, no name reaches it; of output_scale: models/utils.py:467 renames .k_proj before quark.py:955 sees the suffix.
STOPS_AT_OTHER_NAMES = "its loader stops at the tensor names of other multimodal models"
LATENT = "it drops the scales of a latent (MLA) cache and uses 1.0"
CHOSEN_TOKENS = "its attention of chosen tokens keeps a cache of 16 bits, and refuses an FP8 cache (NotImplementedError)"
SIXTEEN_BITS_ALONE = "FlashAttnMLASparseImpl currently supports only FP16/BF16"
VLLM = [
    explanation("asks for top_k", "no model", "its Transformers backend asks config.json for num_experts_per_tok, which aria_text calls moe_topk (AssertionError)",
                seen=r"AssertionError:  \(moe\.py:185\)"),
    explanation("own experts not found", "no model", "its loader does not find the parameters of its own experts (KeyError)", seen=r"KeyError: 'blocks\.0\.ffn\.experts"),
    explanation("videos alone", "no model", "its Transformers backend runs no processor of videos alone", seen="InstructBlipVideoProcessor"),
    explanation("norms before delta nets", "no model", "its loader stops at the names of the norms before delta nets", seen="attention_layer_norm"),
    explanation("norm of each head", "no model", "its model file does not know the normalization of each head (qk_layernorm)", settings=[setting("qk_layernorm")]),
    explanation("transformers too old", "no model", "the versions of transformers that it allows do not know the model", seen=r"model type `(?!flint)"),
    explanation("no AutoModel", "no model", "transformers has no AutoModel of it for its Transformers backend", seen="Unrecognized configuration class"),
    explanation("tensors not found", "no model", "its Transformers backend does not find the tensors of the model", seen="TransformersMultiModalForCausalLM"),
    explanation("asks for first_k_dense_replace", "no model", "its model file asks config.json for first_k_dense_replace, which transformers does not write (ValueError)",
                settings=[setting("first_k_dense_replace", None)], seen="first_k_dense_replace not exist"),
    explanation("Mistral 4 without architectures", "no model", "it asks text_config for architectures, which Mistral 4 inside Mistral 3 does not name (ValueError)",
                settings=[setting("text_config.model_type", "mistral4"), setting("text_config.architectures", None)], seen="No model architectures"),
    explanation("not run", "no model", "it does not run the model"),
    # Run with llama and ministral3, and with mistral3, whose loader renames them (mistral3.py:435).
    explanation("activation_scale", "no model", "its loader stops at activation_scale, a name that it knows in mistral3 alone", methods=["fp8"], names=[".activation_scale"],
                read=["llama", "ministral3", "mistral"]),
    explanation("stops at names", "refused", "its loader stops at the names of KV scales", seen="in Lfm2"),
    explanation("takes self_attn out", "refused", "its loader takes self_attn out of the name of the scales and stops at layers.1.k_scale", seen=r"'model\.layers\.N\.k_scale'"),
    explanation("names of other multimodal models", "refused", STOPS_AT_OTHER_NAMES, names=INNER_MODEL),
    explanation("indexer", "refused", "its loader stops at the scales of FP8 weights of the indexer (KeyError)", needs_weights=True, seen=r"KeyError.*indexer"),
    explanation("one Linear of delta nets", "refused", "its loader stops at the scales of FP8 weights of delta nets, which it runs as one Linear (KeyError)", needs_weights=True,
                seen="in_proj_qkvbfg_a"),
    explanation("chosen tokens, ModelOpt's", "refused", CHOSEN_TOKENS, methods=MODELOPT, seen=SIXTEEN_BITS_ALONE),
    explanation("chosen tokens", "refused when asked", CHOSEN_TOKENS, seen=SIXTEEN_BITS_ALONE),
    explanation("kv_scale of K alone", "ones", "its loader takes kv_scale for K alone", methods=[*MODELOPT, "quark"], names=[".kv_scale"], read=["qwen4_exp"]),  # engines_names.py
    explanation("no scheme of a cache", "refused", "its attention of chosen tokens refuses a configuration with kv_cache_scheme (NotImplementedError)", methods=COMPRESSED,
                seen="does not support KV quantization"),
    # In its Transformers backend, which has a place for scales of ModelOpt checkpoints.
    explanation("latent, ModelOpt's", "ones", LATENT, methods=MODELOPT, read=["bailing_hybrid"]),  # of which kvcal writes no such form
    explanation("latent, all", "ones when asked", LATENT, elsewhere=r"^modelopt: lost"),
    explanation("latent but ModelOpt's", "ones when asked", LATENT, methods=["compressed-tensors", "fp8", "quark"]),
    explanation("projections of attn", "refused", "its loader stops at scales below k_proj of modules not named self_attn", methods=MODELOPT, names=INPUTS_OF_PROJECTIONS,
                read=["gpt_bigcode", "gptj"]),
    # Source: vLLM 0.32, base_config.py:246, whose pattern leaves names below .attn as they are.
    explanation("attn of attn", "ones", "it takes attn.k_scale for a name of its own, where its attention is attn.attn, and drops it without a word", names=PLAIN),
    explanation("MXFP4 of Quark", "by rules", methods=["quark"], settings=[setting("quantization_config.global_quant_config.weight.dtype", "fp4")], read=["gpt_oss"]),
    explanation("MXFP4 biases", "refused", "its loader stops at the biases of MXFP4 experts (KeyError)", methods=COMPRESSED,
                settings=[setting("quantization_config.format", "mxfp4-pack-quantized")], needs_weights=True, read=["gpt_oss"]),
    explanation("stops at FP8 weights", "refused", "its loader stops at the scales of FP8 weights", needs_weights=True,
                seen=r"(input_scale|w2_bias)'|tuple index|chunk expects|invalid for input of size 1"),
    explanation("stops at attn", "refused", "its loader stops at the name h.0.attn.k_scale", names=PLAIN, seen=r"h\.N\.attn\.k_scale"),
    explanation("in a scheme", "by rules", methods=COMPRESSED),
    explanation("drops kv_scale", "ones", "its loader drops kv_scale", names=[".kv_scale"]),
    explanation("stops at kv_scale", "refused", "its loader stops at the name kv_scale", names=[".kv_scale"], seen=r"\(falcon\.py"),
    explanation("cache not told", "sixteen bits", "its model file makes attention without the cache's configuration, so the cache keeps 16 bits"),
    explanation("output scales", "refused", "its loader renames k_proj before it maps the scales, and stops at output_scale (AttributeError)", methods=["quark"],
                names=OUTPUT_SCALES, read=["exaone"]),
]

# Its model files, where they are not vLLM's.
APHRODITE = [
    explanation("experts not run", "no model", "its Transformers backend does not run the model's experts", seen=r"w13_weight\.weight|moe\.py:164"),
    explanation("asks config.json", "no model", "it asks config.json for a key that such models do not have", seen=r"'ExaoneMoeConfig'|config\.py:485"),
    # It loads the scales beside it.
    explanation("drops kv_scale of Gemma 4", "ones", "its loader drops kv_scale", names=[".kv_scale"], read=["gemma4", "gemma4_text", "gemma4_unified"]),
    explanation("two head sizes, asked", "refused", "its attention with heads of two sizes takes no FP8 cache (NotImplementedError)", methods=COMPRESSED,
                seen="TritonAttentionDiffKVBackend"),
    explanation("two head sizes", "sixteen bits", "its attention with heads of two sizes keeps 16 bits", seen="in the checkpoint"),
    *[known for known in VLLM if known["name"] != "asks for top_k"],
]

# Source: TGI db931fcf, server/text_generation_server/models/__init__.py.
TGI_EXPERTS = "its experts refuse weights in FP8 of this form (AssertionError)"
TGI_BACKEND = "TGI runs the model through transformers, whose cache keeps 16 bits"
TGI = [
    explanation("one KV head", "no model", "its model file wants one KV head (AssertionError)", settings=[setting("multi_query", False)]),
    # Its transformers takes attn_config, whose model_type is empty too, for the whole.
    explanation("sizes of attn_config", "no model", "it reads the sizes of dbrx from attn_config of config.json, where they are not (AssertionError)", seen="proportional blocks"),
    # Source: TGI db931fcf, flash_rw_modeling.py:494, which reads it as null.
    explanation("parallel norms", "no model", "its model file asks config.json of the new decoder architecture for num_ln_in_parallel_attn (ValueError)",
                settings=[setting("new_decoder_architecture"), setting("num_ln_in_parallel_attn", None), setting("num_hidden_layers", 80, is_not=True)]),
    explanation("not run", "no model", "TGI db931fcf does not run the model"),
    explanation("stops at compressed-tensors", "refused", "transformers stops in TGI at compressed-tensors for this model (TypeError)", methods=COMPRESSED, seen="TypeError"),
    explanation("names of transformers 5", "refused", "its loader stops at the tensor names of transformers 5", names=INNER_MODEL),
    explanation("no target", "refused", "its loader finds no target for the model's Linears in the configuration", methods=COMPRESSED,
                settings=[setting("quantization_config.config_groups", {}), setting("quantization_config.ignore", [])], elsewhere=r"@fp8: 16-bit"),
    explanation("backend refuses FP8", "refused", "TGI would run the model through transformers, and refuses FP8 weights there", methods=["fp8", "quark"],
                seen="Activation scheme static not supported|cannot access local variable"),
    explanation("no FP8 cache", "sixteen bits", "it gives the model a cache of 16 bits, whatever it is told", elsewhere="Cannot find compressed-tensors target"),
    explanation("through transformers", "sixteen bits", TGI_BACKEND),
    explanation("experts refuse FP8", "refused", TGI_EXPERTS, methods=[*MODELOPT, "quark"], needs_weights=True, seen="unquantized"),
    explanation("experts refuse method fp8", "refused", TGI_EXPERTS, methods=["fp8"], seen="unquantized"),
    explanation("experts refuse compressed-tensors", "refused", "its experts refuse compressed-tensors (AssertionError: scoring func)", methods=COMPRESSED, seen="scoring func"),
    # Its Linears are Conv1D, which need no target.
    explanation("needs no target", "by rules", seen="^ignore-none: loaded"),
]

# Source: LMDeploy 0.18.0, pytorch/models/patch.py.
# What else did not start asked for kernels or for keys of config.json that were not there. `unless`: these did not start either, and verify says of them what
# it says of types that were run, that the loaders stop at names of scales.
LMDEPLOY = [explanation("no rewrite", "no model", "LMDeploy 0.18's PyTorch engine does not run the model",
                        seen=r"Can not found rewrite|support has been removed|\(default\.py:(18|21)\)|AmbiguousGlobalPerLayerAttributeError|'PreTrainedConfig' object",
                        unless="apertus cohere2_moe dbrx falcon_h1 flint fuyu gemma4 gemma4_text glm46v glm4v_moe granite4_vision hunyuan_v1_dense hunyuan_v1_moe "
                        "idefics3 laguna lfm2 lfm2_moe lfm2_vl llava_onevision mimo_v2_flash mistral3 olmo_hybrid persimmon smolvlm".split())]

# transformers 5.17 with compressed-tensors 0.19, and 5.23 with 0.20.
TRANSFORMERS = [
    explanation("needs code", "no model", "the model needs code of its checkpoint; tried without", seen="contains custom code|InternLM3 with"),
    explanation("not known", "no model", "it does not know the model", seen="does not recognize this architecture"),
    explanation("asks for factor", "no model", "its model file asks rope_scaling for factor (KeyError)", seen="KeyError: 'factor'"),
    explanation("no AutoModel", "no model", "AutoModelForCausalLM does not take its configuration", seen="Unrecognized configuration class"),
    explanation("attention in no table", "refused", "it starts, and its forward pass stops at the attention recipe: compressed-tensors looks for eager attention in a table "
                "that does not have it (KeyError)", methods=COMPRESSED, needs_attention=True, seen="KeyError: 'eager'"),
    explanation("attention around another", "refused", "the whole has another kind of attention than the text model inside, and compressed-tensors stops at the attention recipe "
                "(AssertionError)", methods=COMPRESSED, needs_attention=True, seen=r"attention: refused: AssertionError:  \(quantizer_compressed_tensors"),
    explanation("asks for KV heads", "refused", "it asks config.json for num_key_value_heads, which such models do not have (ValueError)", methods=COMPRESSED,
                seen="Cannot determine num_key_value_heads"),
    explanation("one head size", "refused", "it asks config.json for one head size of all layers", methods=COMPRESSED, seen="AmbiguousGlobalPerLayerAttributeError"),
    explanation("names of other multimodal models", "ones", "the model does not have the tensor names of other multimodal models", names=INNER_MODEL),
    explanation("renames tensors", "ones", "it renames the tensors of published checkpoints, and does not find the scales", methods=COMPRESSED),
    explanation("no scales for the class", "sixteen bits", "gives the cache of this attention class no scales, and drops those of the file", methods=COMPRESSED),
        explanation("convolutions fail", "refused without groups", "its converter of convolutions fails on empty config_groups", methods=COMPRESSED, only=["olmo_hybrid"]),
    explanation("vision tower fails", "refused without groups", "its converter of the vision tower fails on empty config_groups", methods=COMPRESSED,
                seen="attn.qkv.weight"),
    explanation("experts fail", "refused without groups", "its loader of experts fails on empty config_groups (IndexError)", methods=COMPRESSED),
]

# Source: compressed-tensors 0.20.1, quantization/lifecycle/initialize.py:165. 5.23 takes the scales with 0.20.0 and 0.20.1, 5.24 with neither.
RENAMED = explanation("cache argument renamed", "sixteen bits", "its attention calls its argument cache, compressed-tensors (0.20.1) looks for past_key_values, so no layer gets scales; "
                      "use transformers 5.23 (with compressed-tensors 0.20) or 5.17 (with 0.19), which have the old name", methods=COMPRESSED,
                      # deepseek_ocr2: run with a group of one Linear. The others are models of the same attention, whose FP8 weights could not be made.
                      read=["deepseek_ocr2", "dots3_note", "glm5_next", "inkling_mm_model", "qwen4_exp"])
NO_GROUPS = setting("quantization_config.config_groups", {})


def without_groups(known):
    """What is refused for empty config_groups; with groups, another explanation tells what becomes of the scales."""
    return dict(known, effect="refused", when=known["when"] | dict(settings=[NO_GROUPS]))


TRANSFORMERS_5_24 = [
    *[known for known in TRANSFORMERS if known["effect"] == "no model"],
    *[without_groups(known) for known in TRANSFORMERS if known["effect"] == "refused without groups"],
    explanation("experts fail at attention", "refused", "its loader of experts fails on groups of attention alone", methods=COMPRESSED, needs_attention=True,
                seen="attention: refused: RuntimeError: We encountered some issues during automatic conversion", read=["mixtral", "olmoe", "qwen3_moe"]),  # engines_sources.py
    explanation("splits scales of weights", "refused", "its converter splits the scales of FP8 weights as it does the weights, and fails", methods=COMPRESSED,
                settings=[setting("quantization_config.format", "float-quantized")], seen="^weights: refused: RuntimeError: We encountered some issues during automatic conversion"),
    RENAMED,
    *[known for known in TRANSFORMERS if known["effect"] not in ("no model", "refused without groups")],
]

# Parts of Linears that engines run as one in all models whose code was read, but for those in UNFUSED: vLLM 0.33, laguna.py:84, as in Aphrodite; Aphrodite 0.24.1's
# Transformers backend, whose modules were looked at.
ALWAYS_FUSED = {"k_proj", "up_proj", "expert"}
UNFUSED = {("vllm", "up_proj"): ["laguna"], ("aphrodite", "up_proj"): ["laguna"], ("aphrodite", "k_proj"): ["gemma4_unified_text"]}
