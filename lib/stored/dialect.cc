#include "stored/dialect.h"

namespace kvcal {

std::optional<fp8::Format> read_dialect(const Json& config) {
  const Json* word = find_field(config, kDialectKey);
  if (!word) return std::nullopt;
  for (const fp8::Format format :
       {fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz, fp8::Format::kE5m2})
    if (*word == Json(fp8::name_of(format))) return format;
  fail("key '", kDialectKey, "' is ", word->dump(),
       ", expected \"float8_e4m3fn\", \"float8_e4m3fnuz\" or \"float8_e5m2\"");
}

std::optional<fp8::Format> read_dialect(const ModelDir& model) {
  return in_context((model.path() / "config.json").string(),
                    [&] { return read_dialect(model.config()); });
}

KvDType cache_dtype_of(fp8::Format format) {
  for (const KvDType dtype : {KvDType::kFp8E4m3Fnuz, KvDType::kFp8E5m2})
    if (fp8_format(dtype) == format) return dtype;
  return KvDType::kFp8E4m3;
}

}  // namespace kvcal
