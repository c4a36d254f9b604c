#include "export/quantized_copy.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/file.h"
#include "core/interrupt.h"
#include "export/checkpoint_copy.h"
#include "export/layer_scales.h"
#include "export/planned_weights.h"
#include "export/source_values.h"
#include "quant/weight_scales.h"

namespace kvcal {
namespace {

/// Reports the progress of the weights. Of those that are quantized every value counts twice, every
/// byte of a rearranged tensor once; where nothing is, every shard that is copied, in bytes.
class Progress {
 public:
  Progress(const ExportInput& input, const WeightChanges& changes) : sink_(input.progress) {
    const Calibration& calibration = input.calibration;
    for (const PlannedWeight& weight : changes.quantized)
      if (!calibration.stored_weights.contains(weight.module))
        total_ += 2 * static_cast<int64_t>(element_count(weight.shape));
    for (const RenamedTensor& copy : changes.renamed)
      if (copy.slice && !copy.slice->is_contiguous())
        total_ += static_cast<int64_t>(byte_count(copy.shape(), copy.source->dtype));
    copies_ = total_ == 0;
    if (copies_)
      for (const SafetensorsFile& shard : input.model.shards())
        total_ += static_cast<int64_t>(shard.file().bytes().size());
  }
  void add(uint64_t values) {
    if (!copies_) tell("quantizing weights", values, "values");
  }
  void add_shard(const SafetensorsFile& shard) {
    if (copies_) tell("writing", shard.file().bytes().size(), "B");
  }

 private:
  void tell(std::string_view stage, uint64_t more, std::string_view unit) {
    done_ += static_cast<int64_t>(more);
    if (sink_) sink_->progress(stage, std::min(done_, total_), total_, unit);
  }

  Diagnostics* sink_;
  int64_t done_ = 0, total_ = 0;
  bool copies_ = false;  ///< nothing is quantized
};

/// A weight with known scales. Its codes are made on demand, or copied where the source has them.
class CodedWeight {
 public:
  CodedWeight(const PlannedWeight& weight, const SafetensorsFile& file, const ExportInput& input)
      : weight_(weight), file_(file), arithmetic_(arithmetic_of(input)) {
    const auto& stored = input.calibration.stored_weights;
    if (const auto found = stored.find(weight.module); found != stored.end()) {
      scales_ = found->second;
    } else {
      values_.emplace(file, *weight.source, weight.slice);
      compute_scales(input.pool);
    }
    summary_.largest_scale = *std::ranges::max_element(scales_, {}, &Scale::value);
    if (input.shares_weights) summary_.scales = scales_;
  }

  const PlannedWeight& planned() const { return weight_; }
  const WeightSummary& summary() const { return summary_; }
  const std::vector<Scale>& scales() const { return scales_; }

  TensorSource codes() {
    if (!values_) return source_of(file_, *weight_.source);
    return generated_source(
        weight_.weight_name(), DType::kF8E4M3, weight_.shape,
        [this](uint64_t offset, std::span<std::byte> bytes) {
          encode(offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()});
        });
  }

 private:
  static ScaleArithmetic arithmetic_of(const ExportInput& input) {
    return input.scale_in_model_dtype ? ScaleArithmetic::kModelDtype : ScaleArithmetic::kFloat32;
  }

  void compute_scales(ThreadPool* pool) {
    WeightScales found;
    values_->see_all([&](const TensorView& values) {
      found = weight_scales(values, *weight_.scheme->weights, arithmetic_, pool);
    });
    summary_.amax = Amax{};
    for (const Amax amax : found.amax)
      summary_.amax->value = std::max(summary_.amax->value, amax.value);
    grid_ = found.grid;
    scales_ = std::move(found.scales);
  }

  /// Called by several threads, each value once. Resources exist from the first value to the last,
  /// because a file may have ten thousand weights.
  void encode(uint64_t first, std::span<uint8_t> codes) {
    values_->prepare([&](const TensorView& values) {
      coder_ = std::make_unique<WeightCoder>(values, grid_, scales_, arithmetic_);
    });
    coder_->encode(first, codes);
    if (values_->done(first, codes.size())) coder_.reset();
  }

  const PlannedWeight& weight_;
  const SafetensorsFile& file_;
  ScaleArithmetic arithmetic_;
  std::optional<SourceValues> values_;  ///< none where the source has codes
  ScaleGrid grid_;
  std::vector<Scale> scales_;
  WeightSummary summary_;
  std::unique_ptr<WeightCoder> coder_;
};

/// Scales of a weight in the format's layout.
Tensor weight_scale_tensor(const WeightScaleNames& format, const std::string& module,
                           const PlannedWeight& weight, const std::vector<Scale>& scales,
                           DType dtype) {
  const QuantArgs& args = *weight.scheme->weights;
  const Strategy strategy = resolved_strategy(args);
  return scale_tensor(format.scale_name(module, strategy),
                      format.scale_shape(scale_grid(args, weight.shape), strategy), scales, dtype);
}

class WeightsCopy {
 public:
  WeightsCopy(const ExportInput& input, const FormatParts& parts,
              const std::filesystem::path& folder)
      : input_(input),
        parts_(parts),
        folder_(folder),
        has_scales_shard_(input.shares_weights || (input.model.index() && !is_quantized())),
        changes_(weight_changes(input.model, input.calibration)),
        progress_(input, changes_),
        added_(input.model.shards().size()) {
    for (const Tensor& tensor : parts.tensors)
      added_to(has_scales_shard_ || added_.size() == 1 ? 0 : shard_beside(tensor.name))
          .push_back(tensor);
    for (const LinearCalibration& linear : input.calibration.linears)
      inputs_.emplace(linear.module, &linear);
  }

  WrittenCheckpoint write(const WrittenCheckpoint* first) {
    const ModelDir& model = input_.model;
    if (first)
      link_weights(*first);
    else
      for (size_t shard = 0; shard < model.shards().size(); ++shard) write_shard(shard);
    if (has_scales_shard_)
      write_scales_shard(model, shared_, folder_);
    else if (model.index())
      write_index(model, model.shard_names(), folder_);
    return std::move(written_);
  }

 private:
  bool is_quantized() const { return input_.calibration.plan.quantizes_weights(); }

  /// Shard of an attention module or, for "self_attn.k_proj.k_scale", of its Linear, which does not
  /// exist where Q, K and V are fused.
  size_t shard_beside(const std::string& scale) const {
    const auto& layers = input_.calibration.layers;
    std::string module = scale.substr(0, scale.rfind('.'));
    if (std::ranges::find(layers, module, &AttentionCalibration::module) == layers.end() &&
        !input_.model.find(module + ".weight"))
      module.resize(module.rfind('.'));
    return shard_of(input_.model, first_tensor_of(input_.model, module).name);
  }

  /// List that the scales of a shard go into.
  std::vector<Tensor>& added_to(size_t shard) {
    return has_scales_shard_ ? shared_ : added_[shard];
  }

  void link_weights(const WrittenCheckpoint& first) {
    for (const std::string& name : shared_shard_names(input_.model)) {
      std::error_code error;
      fs::create_hard_link(first.folder / name, folder_ / name, error);
      if (error) kvcal::copy_file(first.folder / name, folder_ / name);
    }
    for (const PlannedWeight& weight : changes_.quantized) {
      const WeightSummary& summary = first.weights.at(weight.module);
      add_scales(weight, summary, summary.scales);
    }
  }

  void write_shard(size_t shard) {
    throw_if_interrupted();
    const SafetensorsFile& file = input_.model.shards()[shard];
    std::vector<std::unique_ptr<CodedWeight>> weights = coded_weights(shard);
    std::vector<TensorSource> sources = sources_of(added_[shard]);
    for (const auto& weight : weights) sources.push_back(weight->codes());
    kvcal::write_shard(file, shard, folder_ / output_name(shard), std::move(sources), changes_,
                       {.pool = input_.pool, .written = [this](uint64_t n) { progress_.add(n); }},
                       !is_quantized() && !has_scales_shard_);
    progress_.add_shard(file);
    added_[shard].clear();
    added_[shard].shrink_to_fit();
  }

  /// Makes the quantized weights of one shard and adds their scales to added_to(shard).
  std::vector<std::unique_ptr<CodedWeight>> coded_weights(size_t shard) {
    const SafetensorsFile& file = input_.model.shards()[shard];
    std::vector<std::unique_ptr<CodedWeight>> weights;
    for (const PlannedWeight& weight : changes_.quantized) {
      if (weight.shard != shard) continue;
      throw_if_interrupted();
      const std::string place = file.file().path().string();
      weights.push_back(in_context(weight.slice ? place + ": " + weight.weight_name() : place, [&] {
        return std::make_unique<CodedWeight>(weight, file, input_);
      }));
      add_scales(weight, weights.back()->summary(), weights.back()->scales());
      if (!input_.calibration.stored_weights.contains(weight.module))
        progress_.add(element_count(weight.shape));
    }
    return weights;
  }

  void add_scales(const PlannedWeight& planned, const WeightSummary& summary,
                  const std::vector<Scale>& scales) {
    const WeightScaleNames& format = *parts_.weights;
    std::vector<Tensor>& added = added_to(planned.shard);
    const DType dtype = input_.scale_in_model_dtype ? planned.source->dtype : DType::kF32;
    added.push_back(weight_scale_tensor(format, planned.module, planned, scales, dtype));
    written_.weights.emplace(planned.module, summary);
    if (!planned.tied_module.empty()) {
      // transformers ties the codes, and needs the head's own scales.
      added.push_back(weight_scale_tensor(format, planned.tied_module, planned, scales, dtype));
      written_.weights.emplace(planned.tied_module, summary);
    }
    if (!planned.has_input_scale()) return;
    const Scale scale = inputs_.at(planned.module)->input_scale;
    added.push_back(scale_tensor(planned.input_scale_name(), format.scalar_shape(),
                                 {input_scale_in(dtype, scale)}, dtype));
  }

  std::string output_name(size_t shard) const {
    if (has_scales_shard_) return shared_shard_names(input_.model)[shard];
    return input_.model.index() ? input_.model.shard_names()[shard] : std::string(kSingleFileName);
  }

  const ExportInput& input_;
  const FormatParts& parts_;
  const fs::path folder_;
  const bool has_scales_shard_;  ///< scales lie in a shard of their own
  const WeightChanges changes_;
  Progress progress_;
  std::vector<std::vector<Tensor>> added_;  ///< to each shard
  std::vector<Tensor> shared_;              ///< to the scales' own shard
  std::map<std::string_view, const LinearCalibration*> inputs_;
  WrittenCheckpoint written_;
};

}  // namespace

WrittenCheckpoint write_weights(const ExportInput& input, const FormatParts& parts,
                                const std::filesystem::path& folder,
                                const WrittenCheckpoint* first) {
  KVCAL_CHECK(parts.weights || !input.calibration.plan.quantizes_weights());
  return WeightsCopy(input, parts, folder).write(first);
}

}  // namespace kvcal
