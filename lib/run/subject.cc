#include "run/subject.h"

#include <algorithm>

#include "calib/plan/resolve_plan.h"
#include "core/error.h"
#include "core/text.h"
#include "export/layer_scales.h"
#include "stored/read_model_config.h"
#include "stored/weights.h"

namespace kvcal {

void PlannedModel::leave_out(const std::vector<int64_t>& layers) {
  for (const int64_t layer : with_readers(layers, config))
    for (Modifier& modifier : recipe.modifiers)
      if (const std::string module = config.attention_module(layer);
          std::ranges::find(modifier.ignore, module) == modifier.ignore.end())
        modifier.ignore.push_back(module);
  SilentDiagnostics told_before;
  plan = resolve_plan(recipe, config, told_before, unrun_modules(model_dir, config));
}

ExportInput PlannedModel::output_of(const Calibration& calibration) const {
  ExportInput input{.model = output ? output->model : model_dir,
                    .calibration = calibration,
                    .config = &config,
                    .recipe = &recipe,
                    .kept = kept_quantization()};
  if (output) input.kept = output->kept ? &*output->kept : nullptr;
  return input;
}

OutputFormats PlannedModel::settle_output(OutputOptions options, Diagnostics& diagnostics) {
  settle_formats(options, model_dir, config.chosen,
                 {.kept = kept_quantization(),
                  .weights = &quantization,
                  .makes_weights = plan.quantizes_weights()},
                 diagnostics);
  OutputFormats formats(std::move(options));
  settle_output(formats.names(), diagnostics);
  return formats;
}

void PlannedModel::settle_output(const std::vector<std::string>& formats,
                                 Diagnostics& diagnostics) {
  output = output_model(model_dir, config, formats, diagnostics);
}

void PlannedModel::check_source() const {
  if (!kept) check_is_unquantized(output ? output->model : model_dir);
}

PlannedModel make_subject(Recipe recipe, const std::string& recipe_name, const std::string& model,
                          Diagnostics& diagnostics, const FamilyChoice& family, bool with_draft) {
  ModelDir model_dir(model);
  ModelConfig config = read_model_config(model_dir, family);
  if (with_draft) find_draft_layer(model_dir, config, diagnostics);
  QuantPlan plan = in_context(recipe_name, [&] {
    return resolve_plan(recipe, config, diagnostics, unrun_modules(model_dir, config));
  });
  auto kept = read_kept_quantization(model_dir);
  auto quantization = read_checkpoint_quantization(model_dir, config);
  return {std::move(recipe), std::move(model_dir), std::move(config),
          std::move(plan),   std::move(kept),      std::move(quantization)};
}

uint64_t tensor_bytes(const ModelDir& model) {
  uint64_t bytes = 0;
  for (const std::string& name : model.tensor_names()) bytes += model.tensor(name).bytes.size();
  return bytes;
}

std::vector<Sample> samples_for(const PlannedModel& subject, const Dataset& dataset,
                                const RecordOptions& records, const SampleOptions& options,
                                Diagnostics& diagnostics, SkippedRecords* skipped) {
  // Already tokenized data needs no tokenizer.
  const Record first = first_record(dataset, records.skip);
  const bool is_tokenized = std::holds_alternative<std::vector<TokenId>>(first.content);
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatFormat> chat;
  if (!is_tokenized) {
    tokenizer = make_tokenizer(subject.model_dir.path());
    chat = ChatFormat::from_folder(subject.model_dir.path(), records.chat);
  }
  SampleOptions tolerant = options;
  tolerant.skip = records.skip;
  return read_samples(dataset, tokenizer.get(), chat ? &*chat : nullptr, subject.config.vocab_size,
                      tolerant, diagnostics, skipped);
}

std::vector<int64_t> with_readers(const std::vector<int64_t>& layers, const ModelConfig& config) {
  const std::vector<int64_t> attention = config.attention_layers();
  for (const int64_t layer : layers)
    if (std::ranges::find(attention, layer) == attention.end())
      fail("layer ", layer, " is none of the layers with K and V, which are ",
           range_text(attention));
  std::vector<int64_t> all;
  for (const int64_t layer : attention) {
    const int64_t source = config.layer(layer).cache_layer;
    if (std::ranges::any_of(layers,
                            [&](int64_t one) { return config.layer(one).cache_layer == source; }))
      all.push_back(layer);
  }
  return all;
}

}  // namespace kvcal
