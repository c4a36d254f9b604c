// config.json and safetensors header of a checkpoint with FP8 weights and KV scales, through
// everything that reads a checkpoint before a forward pass, and through the rules of the engines.
// Parts: config.json, then the header.
#include <cstring>

#include "engines/engine_rules.h"
#include "engines/verify.h"
#include "stored/fp8_checkpoint.h"
#include "stored/kv_scales.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"
#include "support/fuzz.h"
#include "support/json_mutator.h"

using namespace kvcal;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return fuzz::mutate_json_parts(data, size, max_size, seed);
}

namespace {

/// The file that a header describes, its bytes all alike.
std::string with_data(std::string_view header) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  size_t bytes = 0;
  const Json json = Json::parse(header, nullptr, false);
  if (json.is_object())
    for (const auto& [name, entry] : json.items())
      if (entry.is_object() && entry.contains("data_offsets"))
        if (const Json& offsets = entry.at("data_offsets");
            offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned())
          bytes = std::max(bytes, offsets[1].get<size_t>());
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  file.append(std::min(bytes, kMostBytes), '\x3c');
  return file;
}

void read_everything(const fs::path& folder) {
  const ModelDir model_dir(folder);
  fuzz::accepts([&] { read_kv_scheme(read_quantization_config(model_dir)); });
  const ModelConfig config = parse_model_config(model_dir.config());
  fuzz::accepts([&] {
    const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, config);
    const Weights weights(model_dir, config, &quantization);
  });
  fuzz::accepts([&] { read_checkpoint_scales(model_dir, config); });
  for (const std::string& engine : engine_rules().names())
    fuzz::accepts([&] { report_json(verify_checkpoint(folder, engine, {})); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size), 2);
  folder.write("config.json", parts[0]);
  folder.write("model.safetensors", with_data(parts[1]));
  fuzz::accepts([&] { read_everything(folder.path()); });
  return 0;
}
