#include "synth/synthetic.h"

#include <cstdio>
#include <map>
#include <memory>
#include <system_error>

#include "checkpoint/model_dir.h"
#include "core/checked.h"
#include "core/file.h"
#include "synth/synthetic_values.h"

namespace kvcal {
namespace {

/// Tensors of one file and their bytes.
struct Shard {
  std::vector<TensorSource> tensors;
  uint64_t bytes = 0;
};

/// Tensors in the order of the tables; a new file starts where the next tensor would make it too
/// large.
std::vector<Shard> shards_of(const ModelConfig& config, const SyntheticOptions& options) {
  const DType dtype = weight_dtype(config);
  std::vector<Shard> shards(1);
  for (const ExpectedTensor& tensor : expected_tensors(config)) {
    const uint64_t bytes = byte_count(tensor.shape, dtype);
    if (!shards.back().tensors.empty() && shards.back().bytes + bytes > options.max_shard_bytes)
      shards.emplace_back();
    const uint64_t element = static_cast<uint64_t>(bits_of_dtype(dtype)) / 8;
    SyntheticValues values(tensor, config, options.seed);
    shards.back().tensors.push_back({.name = tensor.name,
                                     .dtype = dtype,
                                     .shape = tensor.shape,
                                     .bytes = {},
                                     .file = {},
                                     .file_offset = 0,
                                     .generate = [values = std::move(values), dtype, element](
                                                     uint64_t offset, std::span<std::byte> to) {
                                       values.fill(dtype, offset / element, to);
                                     }});
    shards.back().bytes = checked_add(shards.back().bytes, bytes);
  }
  return shards;
}

/// "model-00001-of-00003.safetensors"
std::string shard_name(size_t index, size_t count) {
  if (count == 1) return std::string(kSingleFileName);
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Index in transformers' layout.
Json index_of(const std::vector<Shard>& shards, uint64_t total_size) {
  std::map<std::string, std::string> files;
  for (size_t i = 0; i < shards.size(); ++i)
    for (const TensorSource& tensor : shards[i].tensors)
      files[tensor.name] = shard_name(i, shards.size());
  return {{"metadata", {{"total_size", total_size}}}, {"weight_map", files}};
}

/// Checks the free space before anything is made of the tensors.
void check_space(const fs::path& folder, const ModelConfig& config) {
  const auto element = static_cast<uint64_t>(bits_of_dtype(weight_dtype(config))) / 8;
  const uint64_t bytes = checked_mul(num_expected_elements(config), element);
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < bytes)
    fail("the tensors need ", bytes, " bytes, the disk of ", folder.parent_path().string(), " has ",
         space.available, " free; --layers writes fewer");
}

}  // namespace

SyntheticCheckpoint write_synthetic_checkpoint(const Json& config, const SyntheticOptions& options,
                                               const fs::path& folder, Diagnostics& diagnostics) {
  const Json json = synthetic_config(config, options);
  const ModelConfig parsed = parse_model_config(json, options.family);
  check_space(folder, parsed);
  std::vector<Shard> shards = shards_of(parsed, options);
  SyntheticCheckpoint result{.model_type = parsed.model_type,
                             .num_layers = parsed.num_hidden_layers,
                             .num_files = static_cast<int64_t>(shards.size()),
                             .dtype = weight_dtype(parsed)};
  for (const Shard& shard : shards) {
    result.num_tensors += static_cast<int64_t>(shard.tensors.size());
    result.bytes = checked_add(result.bytes, shard.bytes);
  }

  ThreadPool pool(options.threads);
  uint64_t done = 0;
  const auto report = [&](uint64_t bytes) {
    done += bytes;
    diagnostics.progress("writing", static_cast<int64_t>(done), static_cast<int64_t>(result.bytes),
                         "B");
  };
  write_text_file(folder / "config.json", dump_as_python(json) + "\n");
  if (shards.size() > 1)
    write_text_file(folder / kIndexFileName, dump_json(index_of(shards, result.bytes)));
  for (size_t i = 0; i < shards.size(); ++i)
    write_safetensors(folder / shard_name(i, shards.size()), std::move(shards[i].tensors),
                      {{"format", "pt"}}, {.pool = &pool, .written = report});
  return result;
}

}  // namespace kvcal
