#include "quant/kv_dtype.h"

#include "core/registry.h"

namespace kvcal {

KvDType parse_kv_dtype(std::string_view name) {
  static const Registry<KvDType> kDtypes{"KV cache dtype",
                                         {{"float32", KvDType::kFloat32},
                                          {"float16", KvDType::kFloat16},
                                          {"bfloat16", KvDType::kBFloat16},
                                          {"fp8_e4m3", KvDType::kFp8E4m3},
                                          {"fp8_e5m2", KvDType::kFp8E5m2},
                                          {"fp8_e4m3fnuz", KvDType::kFp8E4m3Fnuz}}};
  return kDtypes.at(name);
}

}  // namespace kvcal
