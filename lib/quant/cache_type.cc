#include "quant/cache_type.h"

#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"

namespace kvcal {
namespace {

/// Words of vLLM, SGLang, TGI, LMDeploy, TensorRT-LLM and PyTorch for the same dtypes.
constexpr std::pair<std::string_view, KvDType> kSpellings[] = {
    {"float", KvDType::kFloat32},         {"fp32", KvDType::kFloat32},
    {"half", KvDType::kFloat16},          {"fp16", KvDType::kFloat16},
    {"bf16", KvDType::kBFloat16},         {"fp8", KvDType::kFp8E4m3},
    {"fp8_e4m3fn", KvDType::kFp8E4m3},    {"float8_e4m3", KvDType::kFp8E4m3},
    {"float8_e4m3fn", KvDType::kFp8E4m3}, {"float8_e4m3fnuz", KvDType::kFp8E4m3Fnuz},
    {"float8_e5m2", KvDType::kFp8E5m2}};

const Registry<KvDType>& dtypes() {
  static const Registry<KvDType> kDtypes{"KV cache dtype",
                                         {{"float32", KvDType::kFloat32},
                                          {"float16", KvDType::kFloat16},
                                          {"bfloat16", KvDType::kBFloat16},
                                          {"fp8_e4m3", KvDType::kFp8E4m3},
                                          {"fp8_e5m2", KvDType::kFp8E5m2},
                                          {"fp8_e4m3fnuz", KvDType::kFp8E4m3Fnuz}}};
  return kDtypes;
}

}  // namespace

std::optional<KvDType> find_kv_dtype(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  const std::string_view word = name.starts_with(kTorch) ? name.substr(kTorch.size()) : name;
  for (const auto& [spelling, dtype] : kSpellings)
    if (normalised_name(spelling) == normalised_name(word)) return dtype;
  if (const KvDType* dtype = dtypes().find(word)) return *dtype;
  return std::nullopt;
}

std::vector<std::string> kv_dtype_names() {
  return dtypes().names();
}

KvDType parse_kv_dtype(std::string_view name) {
  const std::optional<KvDType> dtype = find_kv_dtype(name);
  return dtype ? *dtype : dtypes().at(name);
}

CacheType parse_cache_type(std::string_view name) {
  if (const std::optional<KvDType> dtype = find_kv_dtype(name)) return *dtype;
  std::vector<std::string> known = kv_dtype_names();
  for (const CacheFormat format : kCacheFormats) {
    if (normalised_name(name_of(format)) == normalised_name(name)) return format;
    known.emplace_back(name_of(format));
  }
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  fail("unknown KV cache dtype '", name, "'", did_you_mean(name, known), "; known are ", all);
}

}  // namespace kvcal
