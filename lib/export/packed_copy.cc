#include "export/packed_copy.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "core/interrupt.h"
#include "export/checkpoint_copy.h"
#include "export/compressed_tensors_config.h"
#include "export/matrix_names.h"
#include "export/source_values.h"
#include "export/split_values.h"
#include "quant/weight_packer.h"
#include "quant/weight_storage.h"

namespace kvcal {
namespace {

/// A weight with known scales, whose codes are made on demand.
class PackedWeight {
 public:
  PackedWeight(const NamedWeight& weight, const SafetensorsFile& file, const WeightScheme& scheme,
               const WeightStorage& storage)
      : weight_(weight),
        storage_(storage),
        values_(file, *weight.source, weight.slice),
        packer_(weight.module, scheme.weights, storage, weight.shape, weight.source->dtype) {}

  void make_scales(Amax fused, ThreadPool& pool) {
    values_.see_all([&](const TensorView& values) { packer_.make_scales(values, fused, &pool); });
  }

  const std::vector<Tensor>& parameters() const { return packer_.parameters(); }

  /// Borrows from this.
  TensorSource codes() {
    return {.name = weight_.module + "." + std::string(storage_.codes),
            .dtype = packer_.codes_dtype(),
            .shape = packer_.codes_shape(),
            .bytes = {},
            .file = {},
            .file_offset = 0,
            .generate = [this](uint64_t offset, std::span<std::byte> bytes) {
              values_.prepare([](const TensorView&) {});
              packer_.encode(values_.view(), offset, bytes);
              // Values of a byte, as a share of all: codes of 3 bits do not end with bytes.
              const uint64_t all = byte_count(packer_.codes_shape(), packer_.codes_dtype());
              const auto before = [&](uint64_t byte) {
                return static_cast<uint64_t>(static_cast<unsigned __int128>(byte) *
                                             element_count(weight_.shape) / all);
              };
              const uint64_t first = before(offset);
              values_.done(first, before(offset + bytes.size()) - first);
            }};
  }

 private:
  const NamedWeight& weight_;
  const WeightStorage& storage_;
  SourceValues values_;
  WeightPacker packer_;
};

class PackedCopy {
 public:
  PackedCopy(const PackedCopyInput& input, const std::filesystem::path& folder)
      : input_(input),
        folder_(folder),
        storage_(storage_of(input.scheme.weights, input.scheme.inputs)) {
    for (const NamedWeight& weight : input.found.weights) {
      by_module_.emplace(weight.module, &weight);
      total_ += 2 * static_cast<int64_t>(element_count(weight.shape));
    }
    if (storage_.scales != ScaleStorage::kE4m3) return;
    std::vector<std::string> names;
    for (const std::string& tensor : input.model.tensor_names())
      if (tensor.ends_with(".weight")) names.push_back(tensor.substr(0, tensor.rfind('.')));
    for (std::vector<std::string>& set : sharing_modules(names)) {
      sharing_.push_back(std::move(set));
      for (const std::string& module : sharing_.back()) set_of_.emplace(module, &sharing_.back());
    }
  }

  void write() {
    const ModelDir& model = input_.model;
    for (size_t shard = 0; shard < model.shards().size(); ++shard) write_shard(shard);
    if (model.index()) write_index(model, model.shard_names(), folder_);
  }

 private:
  void write_shard(size_t shard) {
    throw_if_interrupted();
    const ModelDir& model = input_.model;
    const SafetensorsFile& file = model.shards()[shard];
    const auto target = folder_ / (model.index() ? model.shard_names()[shard] : kSingleFileName);
    std::vector<TensorSource> sources;
    std::deque<PackedWeight> weights;
    for (const NamedWeight& weight : input_.found.weights)
      if (weight.shard == shard) {
        PackedWeight& made = weights.emplace_back(weight, file, input_.scheme, storage_);
        make_scales(weight, file, made);
        for (const Tensor& tensor : made.parameters()) sources.push_back(source_of(tensor));
        sources.push_back(made.codes());
      }
    std::deque<SplitValues> split;
    for (const SplitCopy& copy : input_.found.split)
      if (copy.shard == shard) sources.push_back(split.emplace_back(copy, file).source());
    if (sources.empty() && file.is_whole()) return kvcal::copy_file(file.file().path(), target);
    for (const TensorView& tensor : file.tensors())
      if (!input_.found.replaced.contains(tensor.name)) sources.push_back(source_of(file, tensor));
    write_safetensors(target, std::move(sources), metadata_of(file), {.pool = &input_.pool});
    for (const NamedWeight& weight : input_.found.weights)
      if (weight.shard == shard) add_progress(weight);
  }

  void make_scales(const NamedWeight& weight, const SafetensorsFile& file, PackedWeight& made) {
    throw_if_interrupted();
    const std::string place = file.file().path().string();
    in_context(weight.slice ? place + ": " + weight.module : place, [&] {
      made.make_scales(storage_.scales == ScaleStorage::kE4m3 ? shared_amax(weight) : Amax{},
                       input_.pool);
    });
    add_progress(weight);
  }

  /// Largest magnitude of all weights that share this one's global scale.
  Amax shared_amax(const NamedWeight& weight) {
    const auto set = set_of_.find(weight.module);
    if (set == set_of_.end()) return amax_of(weight);
    Amax shared = {};
    for (const std::string& member : *set->second)
      if (const auto found = by_module_.find(member); found != by_module_.end())
        shared.value = std::max(shared.value, amax_of(*found->second).value);
    return shared;
  }

  Amax amax_of(const NamedWeight& weight) {
    const auto made = amax_.emplace(weight.module, Amax{});
    Amax& amax = made.first->second;
    if (!made.second) return amax;
    const SafetensorsFile& file = input_.model.shards()[weight.shard];
    QuantArgs whole = input_.scheme.weights;
    whole.strategy = Strategy::kTensor;
    SourceValues(file, *weight.source, weight.slice).see_all([&](const TensorView& values) {
      amax = weight_amax(values, whole, &input_.pool).front();
    });
    return amax;
  }

  void add_progress(const NamedWeight& weight) {
    done_ += static_cast<int64_t>(element_count(weight.shape));
    input_.progress.progress("quantizing weights", done_, total_, "values");
  }

  const PackedCopyInput& input_;
  const std::filesystem::path folder_;
  const WeightStorage& storage_;
  std::map<std::string_view, const NamedWeight*> by_module_;
  std::deque<std::vector<std::string>> sharing_;
  std::map<std::string_view, const std::vector<std::string>*> set_of_;
  std::map<std::string_view, Amax> amax_;
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

void write_packed_weights(const PackedCopyInput& input, const std::filesystem::path& folder) {
  PackedCopy(input, folder).write();
}

Json packed_config(const WeightScheme& scheme, const std::vector<std::string>& ignore) {
  const std::string_view format = storage_of(scheme.weights, scheme.inputs).format;
  const Json group = {{"format", format},
                      {"input_activations", scheme.inputs ? to_json(*scheme.inputs) : Json()},
                      {"output_activations", nullptr},
                      {"targets", {"Linear"}},
                      {"weights", to_json(scheme.weights)}};
  return {{"config_groups", {{scheme.name, group}}},
          {"format", format},
          {"global_compression_ratio", nullptr},
          {"ignore", ignore},
          {"kv_cache_scheme", nullptr},
          {"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"transform_config", Json::object()},
          {"version", kCompressedTensorsVersion}};
}

}  // namespace kvcal
