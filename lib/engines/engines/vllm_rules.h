#pragma once

#include "engines/engine_rules.h"

namespace kvcal {

// Rules of vLLM 0.32 that engines made of its code share.

using Names = std::vector<NameRule>;

Names joined(Names names, const Names& more);

/// The names that vLLM's loader maps to scales, whatever the quant_method.
Names vllm_names();
/// Parameters that only the method of compressed-tensors makes.
extern const Names kZeroPoints;
/// Names that the methods fp8 and quark take too.
extern const Names kOutputScales;

/// Types whose model files vLLM was run with.
ModelTypes vllm_tried();
/// Source: vLLM 0.33 (and 0.32, Aphrodite 0.24.1) `Attention.__init__`, whose layers compare their
/// index with each word of the list; words are apart by spaces, and "0,1" is one that fits none.
inline constexpr std::string_view kVllmSkipArgument = "--kv-cache-dtype-skip-layers";
ConfigReading vllm_reading();
/// Source: vLLM 0.32, `DefaultModelLoader._prepare_weights`, whose load format is auto.
FileRules vllm_files();
/// Source: vLLM 0.32, `_resolve_auto_dtype` on a GPU with bfloat16.
RunDtype vllm_run_dtype();
/// Why vLLM stops at Quark's names in some models.
inline constexpr std::string_view kStopsAtOutputScale =
    "its loader renames k_proj before it maps the scales, and stops at output_scale "
    "(AttributeError)";
/// With those of the wrappers of wrappers_run_but.
std::vector<Miss> vllm_all_misses();
std::vector<EngineFormat> vllm_formats();
/// Tried with checkpoints of 16-bit weights (tests/fixtures/engines/drafts_*.json): vLLM 0.32 and
/// 0.33 and Aphrodite read alike.
std::vector<DraftReading> vllm_drafts();

MethodRules vllm_compressed_tensors();
MethodRules vllm_modelopt();
MethodRules vllm_quark();
MethodRules vllm_fp8();

/// Source: vLLM 0.32, `BaseKVCacheMethod`, which the methods fp8, quark and modelopt inherit. Its
/// parameters are made while the model's dtype is torch's default, so they are of that dtype.
MethodRules vllm_base(std::string_view method, Names names);

}  // namespace kvcal
