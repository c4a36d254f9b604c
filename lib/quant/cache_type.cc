#include "quant/cache_type.h"

#include <string>
#include <vector>

#include "core/registry.h"

namespace kvcal {

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
