#include "convert/kept_quantization.h"

#include <algorithm>

#include "core/folder.h"
#include "core/json_limits.h"
#include "export/joined_writer.h"
#include "stored/json_member.h"
#include "stored/stored_form.h"

namespace kvcal {

bool keeps_weights(const KeptQuantization& kept, std::string_view format) {
  return std::ranges::all_of(joined_names(format), [&](const std::string& name) {
    return kWriters.at(name).keeps_any_weights || name == kept.format;
  });
}

std::optional<KeptQuantization> read_kept_quantization(const ModelDir& model) {
  KeptQuantization kept;
  for (const char* key : {"quantization_config", "compression_config"})
    if (const Json* config = member(model.config(), key); config && kept.config.is_null())
      kept.config = *config;
  const fs::path file = model.path() / kModelOptFileName;
  if (is_there(file))
    kept.modelopt_file = in_context(file.string(), [&] {
      Json json = parse_model_json(read_text(file, kSmallFileLimits.max_bytes));
      if (!json.is_object()) fail("is ", kind_of(json), ", expected an object");
      return json;
    });
  // A form's own file is no part of the output, whose config.json says the same.
  if (kept.config.is_null() && kept.modelopt_file.is_null())
    if (const QuantizationConfig beside = read_quantization_config(model); beside.form) {
      kept.config = beside.json;
      kept.config["quant_method"] = beside.form->method;
    }
  if (kept.config.is_null() && kept.modelopt_file.is_null()) return std::nullopt;
  kept.format = in_context((model.path() / "config.json").string() + ": quantization_config", [&] {
    if (kept.config.is_null()) return std::string(form_beside(model.path())->method);
    if (!kept.config.is_object()) fail("found ", kind_of(kept.config), ", expected an object");
    return required_string(kept.config, "quant_method");
  });
  const StoredForm* form = form_of_method(kept.format);
  if (!form) return kept;
  kept.format = form->method;
  const bool in_config = form->strip_cache(kept.config);
  const bool in_file = !form->config_file.empty() && form->strip_cache(kept.modelopt_file);
  return in_config || in_file ? std::optional(std::move(kept)) : std::nullopt;
}

bool strip_queries(std::optional<KeptQuantization>& kept) {
  const StoredForm* form = kept ? form_of_method(kept->format) : nullptr;
  if (!form || !form->strip_queries || !form->strip_queries(kept->config)) return false;
  if (!form->strip_cache(kept->config)) kept.reset();
  return true;
}

}  // namespace kvcal
