#include "stored/kv_scheme.h"

#include "stored/fp8_args.h"
#include "stored/stored_form.h"

namespace kvcal {

void parse_cache_args(const Json& args, KvScheme& scheme) {
  const Strategy strategy = parse_fp8_args(args);
  if (is_dynamic(args)) fail("key 'dynamic' is true, engines take the scales from the checkpoint");
  if (strategy != Strategy::kTensor && strategy != Strategy::kAttnHead)
    fail("key 'strategy' is '", name_of(strategy), "', expected tensor or attn_head");
  scheme.strategy = strategy;
}

KvScheme read_kv_scheme(const QuantizationConfig& config) {
  return config.form ? config.form->read_cache_scheme(config) : KvScheme{};
}

}  // namespace kvcal
