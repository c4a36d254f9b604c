#include "run/evaluation_parts.h"

#include <algorithm>

#include "core/text.h"
#include "hub/hub_cache.h"

namespace kvcal {

report::EvalReport page_of(const EvalOptions& options, const std::string& task,
                           const EvalVariants& variants, std::optional<size_t> num_sequences) {
  report::EvalReport page{.task = task,
                          .model = name_of_source(options.model),
                          .dataset = name_of_source(options.dataset),
                          .version = options.version,
                          .reference = variants.reference_name(),
                          .is_single = variants.is_single()};
  if (!num_sequences) return page;
  page.num_sequences = static_cast<int64_t>(*num_sequences);
  page.max_seq_length = options.sequences.max_seq_length;
  if (options.sequences.stride != 0) page.stride = options.sequences.stride;
  return page;
}

Json run_json(const EvalOptions& options, const report::EvalReport& page) {
  Json json = {{"task", page.task},
               {"version", page.version},
               {"model", page.model},
               {"dataset", page.dataset}};
  if (!page.num_sequences) return json;
  json["num_sequences"] = *page.num_sequences;
  json["max_seq_length"] = *page.max_seq_length;
  if (page.stride) json["stride"] = *page.stride;
  if (const Json columns = to_json(options.sequences.records.columns); !columns.empty())
    json["columns"] = columns;
  if (!page.reference.empty()) json["reference"] = page.reference;
  return json;
}

std::string cache_text(const CacheLabel& cache) {
  return std::string(name_of(cache.type)) + (cache.fp8_attention ? "+attention" : "");
}

Json flattened(Json json, bool is_single) {
  if (!is_single) return json;
  Json variant = json.at("variants").at(0);
  json.erase("variants");
  variant.erase("name");
  json.update(variant);
  return json;
}

std::string exact_percent(double fraction) {
  return fixed("%.2f %%", 100.0 * fraction);
}

size_t num_listed(size_t num_layers, size_t most_rows) {
  constexpr size_t kWorstLayers = 10;
  return num_layers <= most_rows ? num_layers : std::min(kWorstLayers, most_rows);
}

std::string listed_text(size_t num_layers, size_t most_rows) {
  const size_t listed = num_listed(num_layers, most_rows);
  if (listed == num_layers) return ":\n";
  return " (the worst " + std::to_string(listed) + " of " + counted(num_layers, "layer") +
         "; --verbose lists all):\n";
}

}  // namespace kvcal
