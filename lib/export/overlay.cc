#include "export/overlay.h"

#include "core/file.h"
#include "core/folder.h"
#include "export/checkpoint_copy.h"
#include "export/checkpoint_files.h"
#include "export/joined_writer.h"

namespace kvcal {
namespace {

/// The index of the source's shards and the overlay's.
std::string index_with_scales(const ModelDir& model, const std::vector<Tensor>& tensors) {
  IndexEntries entries;
  for (size_t shard = 0; shard < model.shards().size(); ++shard)
    for (const TensorView& tensor : model.shards()[shard].tensors())
      entries.add(tensor, model.shard_names()[shard]);
  for (const Tensor& tensor : tensors) entries.add(tensor.view(), std::string(kScalesFileName));
  return index_text(model, std::move(entries));
}

}  // namespace

void write_overlay(const ExportInput& input, const FormatParts& parts, const std::string& format,
                   const std::filesystem::path& folder) {
  if (input.calibration.plan.quantizes_weights())
    fail("an overlay holds scales of K and V; FP8 weights make a checkpoint of their own");
  for (const auto& [name, content] : parts.files) write_text_file(folder / name, content);
  if (!parts.has_checkpoint) return;
  write_safetensors(folder / kScalesFileName, sources_of(parts.tensors), {{"format", "pt"}});
  write_text_file(folder / "config.json", changed_config(input, parts));
  if (input.model.index())
    write_text_file(folder / kIndexFileName, index_with_scales(input.model, parts.tensors));
  const Json overlay = {{"format", format},
                        {"model_type", required_string(input.model.config(), "model_type")},
                        {"num_hidden_layers", input.calibration.num_hidden_layers},
                        {"config", parts.config}};
  write_text_file(folder / kOverlayName, dump_json(overlay));
}

Overlay read_overlay(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kOverlayName;
  if (!is_there(file))
    fail(folder.string(), ": is no overlay: it has no ", kOverlayName,
         ", which --scales-only writes");
  const std::string text = read_text(file, size_t{16} << 20);
  return in_context(file.string(), [&] {
    const Json json = parse_json(text);
    Overlay overlay{.format = required_string(json, "format"),
                    .model_type = required_string(json, "model_type"),
                    .num_hidden_layers = required_int(json, "num_hidden_layers"),
                    .config = Json::object()};
    const Json* config = find_field(json, "config");
    if (!config || !config->is_object()) fail_missing("config", "an object");
    overlay.config = *config;
    in_context("key 'format'", [&] { make_writer(overlay.format); });
    return overlay;
  });
}

}  // namespace kvcal
