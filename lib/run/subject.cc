#include "run/subject.h"

#include <algorithm>

#include "calib/plan/resolve_plan.h"
#include "core/error.h"
#include "core/text.h"
#include "export/layer_scales.h"
#include "family/image_rules.h"
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

namespace {

std::string layers_text(const std::vector<int64_t>& layers) {
  return layers.empty() ? "no layer" : layer_range_text(layers);
}

/// Throws Error where tokens of images saw other tokens in transformers than they will here. Images
/// of one token show nothing.
void check_seen_whole(const ModelConfig& config, const EmbeddedTokens& images) {
  if (!images.seen_whole_in || std::ranges::adjacent_find(images.images) == images.images.end())
    return;
  std::vector<int64_t> own;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.layer(layer).sees_images_whole) own.push_back(layer);
  if (own != *images.seen_whole_in)
    fail("tokens of images see all of their image in ", layers_text(*images.seen_whole_in),
         " of the model that made the samples, and in ", layers_text(own),
         " of this one; make the samples with this model");
}

/// Throws Error where the model cannot run what its vision tower gave a sample.
void check_images(const ModelConfig& config, const EmbeddedTokens& images) {
  const std::string model_type =
      config.wrapper_type.empty() ? config.model_type : config.wrapper_type;
  if (images.model_type != model_type)
    fail("the samples hold images of a '", images.model_type, "' model, and this one is '",
         model_type, "'; make them with python -m kvcal.images and this model");
  if (!image_rules_of(config.wrapper_type)) {
    std::vector<std::string_view> known;
    for (const ImageRules& rules : image_rules()) known.push_back(rules.model_type);
    fail("images of '", model_type, "' models are not supported; supported are those of ",
         join(known, ", "));
  }
  const TensorView& rows = images.rows;
  if (rows.shape[1] != config.hidden_size)
    fail(rows.name, " has shape ", rows.shape, ", and the model's hidden_size is ",
         config.hidden_size, "; make the samples with this model");
  for (const auto& [layer, injected] : images.injected)
    if (layer >= config.num_hidden_layers)
      fail(injected.name, " names no layer of the model, which has ",
           counted(config.num_hidden_layers, "layer"));
  check_seen_whole(config, images);
  if (images.places.empty()) return;
  for (const RopeConfig& rope : config.ropes)
    if (!rope.has_sections() || rope.type == RopeConfig::Type::kDynamic ||
        rope.type == RopeConfig::Type::kLongRope)
      fail("position_ids give places in time, height and width, and the model's rope has none");
}

}  // namespace

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
  std::vector<Sample> samples =
      read_samples(dataset, tokenizer.get(), chat ? &*chat : nullptr, subject.config.vocab_size,
                   tolerant, diagnostics, skipped);
  for (const Sample& sample : samples)
    if (sample.embedded) check_images(subject.config, *sample.embedded);
  return samples;
}

std::vector<const EmbeddedTokens*> embedded_of(std::span<const Sample> samples) {
  const auto has_images = [](const Sample& sample) { return sample.embedded != nullptr; };
  if (std::ranges::none_of(samples, has_images)) return {};
  std::vector<const EmbeddedTokens*> embedded;
  for (const Sample& sample : samples) embedded.push_back(sample.embedded.get());
  return embedded;
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
