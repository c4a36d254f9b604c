#include "export/quantized_copy.h"

#include <algorithm>
#include <deque>
#include <memory>

#include "core/interrupt.h"
#include "export/attention_scales.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/source_values.h"
#include "quant/weight_codes.h"
#include "quant/weight_scales.h"

namespace kvcal {
namespace {

/// Tells the user how far the weights are: every value is seen twice; of what is only put together
/// every byte once.
class Progress {
 public:
  Progress(Diagnostics* sink, const WeightChanges& changes) : sink_(sink) {
    for (const PlannedWeight& weight : changes.quantized)
      total_ += 2 * static_cast<int64_t>(element_count(weight.shape));
    for (const SplitCopy& copy : changes.split)
      if (!copy.planned->slice.is_contiguous())
        total_ += static_cast<int64_t>(byte_count(copy.shape, copy.source->dtype));
  }
  void add(uint64_t values) {
    done_ += static_cast<int64_t>(values);
    if (sink_) sink_->progress("quantizing weights", done_, total_, "values");
  }

 private:
  Diagnostics* sink_;
  int64_t done_ = 0, total_ = 0;
};

/// A weight whose scales are known, and whose codes are made when they are asked for.
class CodedWeight {
 public:
  CodedWeight(const PlannedWeight& weight, const SafetensorsFile& file, ScaleArithmetic arithmetic,
              ThreadPool* pool)
      : weight_(weight), arithmetic_(arithmetic), values_(file, *weight.source, weight.slice) {
    WeightScales found;
    values_.see_all([&](const TensorView& values) {
      found = weight_scales(values, *weight.scheme->weights, arithmetic, pool);
    });
    for (const Amax amax : found.amax)
      summary_.amax.value = std::max(summary_.amax.value, amax.value);
    grid_ = found.grid;
    scales_ = std::move(found.scales);
    summary_.largest_scale = {0.0f};
    for (const Scale scale : scales_)
      summary_.largest_scale.value = std::max(summary_.largest_scale.value, scale.value);
  }

  const PlannedWeight& planned() const { return weight_; }
  const WeightSummary& summary() const { return summary_; }

  Tensor scales_of(const std::string& module, DType dtype) const {
    return scale_tensor(weight_scale_name(module),
                        grid_.scale_shape(resolved_strategy(*weight_.scheme->weights)), scales_,
                        dtype);
  }

  TensorSource codes() {
    return {.name = weight_.weight_name(),
            .dtype = DType::kF8E4M3,
            .shape = weight_.shape,
            .bytes = {},
            .file = {},
            .file_offset = 0,
            .generate = [this](uint64_t offset, std::span<std::byte> bytes) {
              encode(offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
            }};
  }

 private:
  /// Called by several threads, each value once. What a weight needs for its codes is made with its
  /// first and goes with its last: a file may have ten thousand weights.
  void encode(uint64_t first, std::span<uint8_t> codes) {
    values_.prepare([&](const TensorView& values) {
      coder_ = std::make_unique<WeightCoder>(values, grid_, scales_, arithmetic_);
    });
    coder_->encode(first, codes);
    if (values_.done(first, codes.size())) coder_.reset();
  }

  const PlannedWeight& weight_;
  ScaleArithmetic arithmetic_;
  SourceValues values_;
  ScaleGrid grid_;
  std::vector<Scale> scales_;
  WeightSummary summary_;
  std::unique_ptr<WeightCoder> coder_;
};

/// A tensor of one expert that keeps its values: copied by range where they lie in one piece, else
/// put together when they are asked for.
class SplitValues {
 public:
  SplitValues(const SplitCopy& copy, const SafetensorsFile& file)
      : copy_(copy), file_(file), values_(file, *copy.source, &copy.planned->slice) {}

  TensorSource source() {
    if (copy_.planned->slice.is_contiguous()) {
      TensorSource range = source_of(file_, values_of(*copy_.source, copy_.planned->slice).view);
      range.name = copy_.planned->name;
      return range;
    }
    return {.name = copy_.planned->name,
            .dtype = copy_.source->dtype,
            .shape = copy_.shape,
            .bytes = {},
            .file = {},
            .file_offset = 0,
            .generate = [this](uint64_t offset, std::span<std::byte> bytes) {
              values_.prepare([](const TensorView&) {});
              std::ranges::copy(values_.view().bytes.subspan(offset, bytes.size()), bytes.begin());
              const auto size = static_cast<uint64_t>(bits_of_dtype(copy_.source->dtype) / 8);
              values_.done(offset / size, bytes.size() / size);
            }};
  }

 private:
  const SplitCopy& copy_;
  const SafetensorsFile& file_;
  SourceValues values_;
};

class QuantizedCopy {
 public:
  QuantizedCopy(const ExportInput& input, const std::filesystem::path& folder)
      : input_(input),
        folder_(folder),
        changes_(weight_changes(input.model, input.calibration.plan)),
        progress_(input.progress, changes_),
        added_(input.model.shards().size()) {
    for (Tensor& tensor : attention_tensors(input)) {
      const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
      added_[shard_of(input.model, first_tensor_of(input.model, module).name)].push_back(
          std::move(tensor));
    }
    for (const LinearCalibration& linear : input.calibration.linears)
      inputs_.emplace(linear.module, &linear);
  }

  WrittenCheckpoint write() {
    const ModelDir& model = input_.model;
    for (size_t shard = 0; shard < model.shards().size(); ++shard) write_shard(shard);
    if (model.index()) write_index(model, model.shard_names(), folder_);
    return std::move(written_);
  }

 private:
  void write_shard(size_t shard) {
    throw_if_interrupted();
    const SafetensorsFile& file = input_.model.shards()[shard];
    std::vector<std::unique_ptr<CodedWeight>> weights = coded_weights(shard);
    const bool is_changed = !weights.empty() || !added_[shard].empty() || loses_tensors(file) ||
                            (changes_.untied_head && changes_.untied_shard == shard);
    const fs::path target = folder_ / output_name(shard);
    if (!is_changed) return kvcal::copy_file(file.file().path(), target);

    std::vector<TensorSource> sources;
    std::deque<SplitValues> split;
    for (const SplitCopy& copy : changes_.split)
      if (copy.shard == shard) sources.push_back(split.emplace_back(copy, file).source());
    for (const auto& weight : weights) sources.push_back(weight->codes());
    for (const Tensor& tensor : added_[shard]) sources.push_back(source_of(tensor));
    for (const TensorView& tensor : file.tensors())
      if (!changes_.replaced.contains(tensor.name)) sources.push_back(source_of(file, tensor));
    if (changes_.untied_head && changes_.untied_shard == shard) {
      sources.push_back(source_of(file, *changes_.untied_head));
      sources.back().name = changes_.untied_head_name;
    }
    write_safetensors(target, std::move(sources), metadata_of(file),
                      {.pool = input_.pool, .written = [this](uint64_t n) { progress_.add(n); }});
    added_[shard].clear();
    added_[shard].shrink_to_fit();
  }

  /// Of one shard, with its scales among what is added to it.
  std::vector<std::unique_ptr<CodedWeight>> coded_weights(size_t shard) {
    const SafetensorsFile& file = input_.model.shards()[shard];
    const auto arithmetic =
        input_.scale_in_model_dtype ? ScaleArithmetic::kModelDtype : ScaleArithmetic::kFloat32;
    std::vector<std::unique_ptr<CodedWeight>> weights;
    for (const PlannedWeight& weight : changes_.quantized) {
      if (weight.shard != shard) continue;
      throw_if_interrupted();
      const std::string place = file.file().path().string();
      weights.push_back(in_context(weight.slice ? place + ": " + weight.weight_name() : place, [&] {
        return std::make_unique<CodedWeight>(weight, file, arithmetic, input_.pool);
      }));
      add_scales(*weights.back(), shard);
      progress_.add(element_count(weight.shape));
    }
    return weights;
  }

  void add_scales(const CodedWeight& weight, size_t shard) {
    const PlannedWeight& planned = weight.planned();
    const DType dtype = input_.scale_in_model_dtype ? planned.source->dtype : DType::kF32;
    added_[shard].push_back(weight.scales_of(planned.module, dtype));
    written_.weights.emplace(planned.module, weight.summary());
    if (!planned.tied_module.empty()) {
      // transformers ties the codes, and looks for scales of the head's own.
      added_[shard].push_back(weight.scales_of(planned.tied_module, dtype));
      written_.weights.emplace(planned.tied_module, weight.summary());
    }
    if (!planned.has_input_scale()) return;
    const Scale scale = inputs_.at(planned.module)->input_scale;
    added_[shard].push_back(
        scale_tensor(planned.input_scale_name(), {1}, {input_scale_in(dtype, scale)}, dtype));
  }

  bool loses_tensors(const SafetensorsFile& file) const {
    return std::ranges::any_of(file.tensors(), [&](const TensorView& tensor) {
      return changes_.replaced.contains(tensor.name);
    });
  }

  std::string output_name(size_t shard) const {
    return input_.model.index() ? input_.model.shard_names()[shard] : std::string(kSingleFileName);
  }

  const ExportInput& input_;
  const fs::path folder_;
  const WeightChanges changes_;
  Progress progress_;
  std::vector<std::vector<Tensor>> added_;  ///< to each shard
  std::map<std::string_view, const LinearCalibration*> inputs_;
  WrittenCheckpoint written_;
};

}  // namespace

WrittenCheckpoint write_quantized_weights(const ExportInput& input,
                                          const std::filesystem::path& folder) {
  return QuantizedCopy(input, folder).write();
}

}  // namespace kvcal
