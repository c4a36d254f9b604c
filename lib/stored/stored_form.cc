#include "stored/stored_form.h"

#include <array>

namespace kvcal {

// One function for each file of forms/.
const StoredForm& auto_round_form();
const StoredForm& awq_form();
const StoredForm& bitsandbytes_form();
const StoredForm& compressed_tensors_form();
const StoredForm& fbgemm_fp8_form();
const StoredForm& fp8_form();
const StoredForm& gptq_form();
const StoredForm& modelopt_form();
const StoredForm& mxfp4_form();
const StoredForm& quark_form();
const StoredForm& rank_files_form();
const StoredForm& scales_json_form();
const StoredForm& tgi_form();

std::span<const StoredForm* const> stored_forms() {
  static const std::array kForms{
      &compressed_tensors_form(),  // llm-compressor
      &fp8_form(),                 // AutoFP8, DeepSeek
      &modelopt_form(),            // ModelOpt
      &quark_form(),               // AMD Quark
      &gptq_form(),                // GPTQ, GPTQModel
      &awq_form(),                 // AutoAWQ
      &auto_round_form(),          // AutoRound
      &fbgemm_fp8_form(),          // FBGEMM
      &mxfp4_form(),               // gpt-oss
      &bitsandbytes_form(),        // bitsandbytes
      &tgi_form(),                 // text-generation-inference
      &rank_files_form(),          // TensorRT-LLM
      &scales_json_form(),         // vLLM and SGLang
  };
  return kForms;
}

KvScheme no_cache_scheme(const QuantizationConfig& config) {
  return {.where = config.where};
}

bool keeps_config(Json& config) {
  return !config.is_null();
}

const StoredForm* form_of_method(std::string_view method) {
  for (const StoredForm* form : stored_forms())
    if (!form->method.empty() &&
        (form->has_method_variants ? method.starts_with(form->method) : method == form->method))
      return form;
  return nullptr;
}

}  // namespace kvcal
