#include "export/checkpoint_files.h"

#include "core/file.h"
#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/planned_weights.h"
#include "export/quantized_copy.h"

namespace kvcal {

std::string changed_config(const ExportInput& input, const FormatParts& parts) {
  Json config = input.model.config();
  for (const auto& [key, value] : parts.config.items()) config[key] = value;
  if (input.calibration.plan.unties_embedding) untie(config);
  return config_text(config);
}

WrittenCheckpoint write_checkpoint(const ExportInput& input, const FormatParts& parts,
                                   const std::filesystem::path& folder,
                                   const WrittenCheckpoint* first) {
  std::vector<std::string> taken;
  for (const auto& [name, content] : parts.files) taken.push_back(name);
  copy_sidecar_files(input.model, taken, folder);
  WrittenCheckpoint written;
  if (input.calibration.plan.quantizes_weights())
    written = write_quantized_weights(input, parts, folder, first);
  else
    copy_weights({.model = input.model,
                  .tensors = parts.tensors,
                  .is_shared = input.shares_weights,
                  .linked = first ? first->folder : std::filesystem::path(),
                  .pool = input.pool},
                 folder);
  write_text_file(folder / "config.json", changed_config(input, parts));
  return written;
}

std::map<std::string, std::string> recipe_and_arguments(const ExportInput& input) {
  std::map<std::string, std::string> files;
  if (input.recipe) files.emplace("recipe.yaml", to_yaml(*input.recipe));
  if (auto arguments = vllm_arguments(input.calibration))
    files.emplace(kVllmArgumentsName, *std::move(arguments));
  return files;
}

}  // namespace kvcal
