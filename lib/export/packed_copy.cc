#include "export/packed_copy.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/interrupt.h"
#include "export/checkpoint_copy.h"
#include "export/source_values.h"
#include "export/weights_by_name.h"
#include "quant/weight_packer.h"

namespace kvcal {
namespace {

/// A weight with known scales, whose codes are made on demand.
class PackedWeight {
 public:
  PackedWeight(const PlannedWeight& weight, const SafetensorsFile& file, const WeightScheme& scheme,
               const CompressedFormat& storage)
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
    return generated_source(
        weight_.module + "." + std::string(storage_.codes), packer_.codes_dtype(),
        packer_.codes_shape(), [this](uint64_t offset, std::span<std::byte> bytes) {
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
        });
  }

 private:
  const PlannedWeight& weight_;
  const CompressedFormat& storage_;
  SourceValues values_;
  WeightPacker packer_;
};

class PackedCopy {
 public:
  PackedCopy(const PackedCopyInput& input, const std::filesystem::path& folder)
      : input_(input),
        folder_(folder),
        storage_(storage_of(input.scheme.weights, input.scheme.inputs)) {
    for (const PlannedWeight& weight : input.found.quantized) {
      by_module_.emplace(weight.module, &weight);
      total_ += 2 * static_cast<int64_t>(element_count(weight.shape));
    }
    if (storage_.scales != ScaleDType::kE4m3) return;
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
    for (const PlannedWeight& weight : input_.found.quantized)
      if (weight.shard == shard) {
        PackedWeight& made = weights.emplace_back(weight, file, input_.scheme, storage_);
        make_scales(weight, file, made);
        for (const Tensor& tensor : made.parameters()) sources.push_back(source_of(tensor));
        sources.push_back(made.codes());
      }
    kvcal::write_shard(file, shard, target, std::move(sources), input_.found,
                       {.pool = &input_.pool});
    for (const PlannedWeight& weight : input_.found.quantized)
      if (weight.shard == shard) add_progress(weight);
  }

  void make_scales(const PlannedWeight& weight, const SafetensorsFile& file, PackedWeight& made) {
    throw_if_interrupted();
    const std::string place = file.file().path().string();
    in_context(weight.slice ? place + ": " + weight.module : place, [&] {
      made.make_scales(storage_.scales == ScaleDType::kE4m3 ? shared_amax(weight) : Amax{},
                       input_.pool);
    });
    add_progress(weight);
  }

  /// Largest magnitude of all weights that share this one's global scale.
  Amax shared_amax(const PlannedWeight& weight) {
    const auto set = set_of_.find(weight.module);
    if (set == set_of_.end()) return amax_of(weight);
    Amax shared = {};
    for (const std::string& member : *set->second)
      if (const auto found = by_module_.find(member); found != by_module_.end())
        shared.value = std::max(shared.value, amax_of(*found->second).value);
    return shared;
  }

  Amax amax_of(const PlannedWeight& weight) {
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

  void add_progress(const PlannedWeight& weight) {
    done_ += static_cast<int64_t>(element_count(weight.shape));
    input_.progress.progress("quantizing weights", done_, total_, "values");
  }

  const PackedCopyInput& input_;
  const std::filesystem::path folder_;
  const CompressedFormat& storage_;
  std::map<std::string_view, const PlannedWeight*> by_module_;
  std::deque<std::vector<std::string>> sharing_;
  std::map<std::string_view, const std::vector<std::string>*> set_of_;
  std::map<std::string_view, Amax> amax_;
  int64_t done_ = 0, total_ = 0;
};

/// First of two modules that vLLM fuses and that do not share a global scale. Source: vLLM 0.32
/// `compressed_tensors_moe_w4a4_nvfp4.py`, `packed_modules_mapping`.
std::optional<std::pair<std::string, std::string>> unshared_pair(const WeightsByName& found) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {"gate_proj", "up_proj"}, {"q_a_proj", "kv_a_proj_with_mqa"}};
  std::vector<std::string> modules;
  for (const PlannedWeight& weight : found.quantized) modules.push_back(weight.module);
  const std::set<std::string_view> all(modules.begin(), modules.end());
  std::set<std::string> sharing;
  for (const auto& members : sharing_modules(modules))
    sharing.insert(members.begin(), members.end());
  for (const std::string& module : modules)
    for (const auto& [first, second] : kPairs) {
      const size_t dot = module.rfind('.') + 1;
      std::string other = module.substr(0, dot) + std::string(second);
      if (module.substr(dot) == first && all.contains(other) && !sharing.contains(module))
        return std::pair(module, std::move(other));
    }
  return std::nullopt;
}

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

std::vector<std::string> packed_notes(const WeightsByName& found, const WeightScheme& scheme) {
  std::vector<std::string> notes;
  if (scheme.weights.strategy == Strategy::kTensorGroup)
    if (const auto pair = unshared_pair(found))
      notes.push_back(pair->first + " and " + pair->second +
                      ": have global scales of their own, as in llm-compressor 0.14, and vLLM 0.32 "
                      "uses the first one's for both; --ignore leaves such modules in 16 bits");
  for (const PlannedWeight& weight : found.quantized)
    if (auto note = odd_groups_note(weight, scheme.inputs)) {
      notes.push_back(*std::move(note));
      break;
    }
  return notes;
}

}  // namespace kvcal
