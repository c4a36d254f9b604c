#include "stored/weights.h"

#include <algorithm>
#include <utility>

#include "family/expected_tensors.h"
#include "stored/coded_matrix.h"
#include "stored/fp8_checkpoint.h"
#include "stored/row_decoders.h"
#include "stored/weight_binder.h"
#include "stored/weight_rows.h"

namespace kvcal {
namespace {

constexpr std::string_view kWeight = ".weight";

}  // namespace

TensorAccount Weights::account(const ModelDir& model_dir, const ModelConfig& config,
                               const CheckpointQuantization* quantization) {
  Binder binder(model_dir, config, quantization);
  Table table;
  for (const ExpectedTensor& tensor : expected_tensors(config)) binder.bind(tensor, table);
  return binder.finish();
}

void check_described(const ModelDir& model_dir, const ModelConfig& config,
                     const CheckpointQuantization& quantization) {
  in_context(model_dir.given_path().string(), [&] {
    const TensorAccount account = Weights::account(model_dir, config, &quantization);
    check_account(account, config);
    if (!account.head_problem.empty() && !config.lacks_head) fail(account.head_problem);
  });
}

Weights::Weights(const ModelDir& model_dir, const ModelConfig& config,
                 const CheckpointQuantization* quantization)
    : model_dir_(&model_dir), config_(&config) {
  Binder binder(model_dir, config, quantization);
  layers_.resize(config.layers.size());
  for (const ExpectedTensor& tensor : expected_tensors(config))
    binder.bind(tensor,
                tensor.layer == kNoLayer ? model_ : layers_[static_cast<size_t>(tensor.layer)]);
  const TensorAccount account = binder.finish();
  check_account(account, config);
  head_problem_ = account.head_problem;
  for (const TensorRow& row : config.architecture->model_tensors)
    if (quantization && row.role == Role::kLmHead && !has(Role::kLmHead) && head_problem_.empty()) {
      const std::string module = config.head_prefix + std::string(row.name);
      const auto tied =
          quantization->linears.find(module.substr(0, module.size() - kWeight.size()));
      if (tied != quantization->linears.end()) tied_head_ = &tied->second;
    }
}

std::vector<Weights::LayerTensor> Weights::tensors(int64_t layer) const {
  return tensors(layers_.at(static_cast<size_t>(layer)));
}

std::vector<Weights::LayerTensor> Weights::tensors(const Table& table) {
  std::vector<LayerTensor> all;
  for (const auto& [key, bound] : table) {
    all.push_back({.role = key.first, .view = bound.view});
    if (bound.block_scale)
      all.push_back({.role = key.first, .view = *bound.block_scale, .is_scale = true});
    if (bound.coded)
      for (const TensorView& scale : bound.coded->scales())
        all.push_back({.role = key.first, .view = scale, .is_scale = true});
    else if (bound.quantization)
      all.push_back(
          {.role = key.first, .view = bound.quantization->weight_scale, .is_scale = true});
  }
  return all;
}

void Weights::check_head() const {
  if (!head_problem_.empty()) fail("the model gives no probabilities of tokens: ", head_problem_);
}

Role Weights::output_embedding() const {
  KVCAL_CHECK(head_problem_.empty());
  return has(Role::kLmHead) ? Role::kLmHead : Role::kEmbedding;
}

bool Weights::has(Role role) const {
  return model_.contains({role, 0});
}

bool Weights::has(int64_t layer, Role role) const {
  return holder(layer, role, 0).first != nullptr;
}

int64_t Weights::count(int64_t layer, Role role) const {
  int64_t count = 0;
  while (find(layer, role, count)) ++count;
  return count;
}

const Weights::Bound* Weights::find(int64_t layer, Role role, int64_t index) const {
  const Table& table = layers_.at(static_cast<size_t>(layer));
  const auto it = table.find({role, index});
  return it == table.end() ? nullptr : &it->second;
}

std::pair<const Weights::Bound*, Role> Weights::holder(int64_t layer, Role role,
                                                       int64_t index) const {
  if (const Bound* bound = find(layer, role, index)) return {bound, role};
  for (const Role fused_role : fused_roles_of(role))
    if (const Bound* bound = find(layer, fused_role, index)) return {bound, fused_role};
  return {nullptr, role};
}

const Weights::Bound& Weights::model_tensor(Role role, int64_t index) const {
  const auto it = model_.find({role, index});
  KVCAL_CHECK(it != model_.end());
  return it->second;
}

const TensorView& Weights::at(Role role, int64_t index) const {
  return model_tensor(role, index).view;
}

const LinearQuantization* Weights::quantization(int64_t layer, Role role, int64_t index) const {
  const Bound* bound = holder(layer, role, index).first;
  return bound ? bound->quantization : nullptr;
}

const LinearQuantization* Weights::quantization(Role role, int64_t index) const {
  return model_tensor(role, index).quantization;
}

const LinearQuantization* Weights::output_quantization() const {
  return tied_head_ ? tied_head_ : quantization(output_embedding());
}

WeightRows Weights::rows(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  return held_as == role ? whole(*bound) : cut(whole(*bound), layer, role, held_as);
}

WeightRows Weights::rows(Role role, int64_t index) const {
  return whole(model_tensor(role, index));
}

WeightRows Weights::rows_to_pack(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  WeightRows all = whole_to_pack(*bound);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::rows_to_pack(Role role, int64_t index) const {
  return whole_to_pack(model_tensor(role, index));
}

namespace {

WeightRows coded(const TensorView& codes, const LinearQuantization& quantization) {
  KVCAL_CHECK(quantization.scales_rows());
  WeightRows rows{.parts = {codes}};
  const std::vector<float> scales = as_float32(std::span(&quantization.weight_scale, 1));
  for (int64_t row = 0; row < codes.shape[0]; ++row)
    rows.row_scales.push_back(scales[static_cast<size_t>(row / quantization.block_rows)]);
  return rows;
}

}  // namespace

WeightRows Weights::codes(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound && bound->quantization);
  WeightRows all = coded(bound->view, *bound->quantization);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::codes(Role role, int64_t index) const {
  const Bound& bound = model_tensor(role, index);
  KVCAL_CHECK(bound.quantization);
  return coded(bound.view, *bound.quantization);
}

namespace {

/// Decodes all rows now, as F32. name: of the tensor.
WeightRows decoded_now(const WeightRows& rows, std::string_view name) {
  WeightRows result;
  const DecodedRows& all = rows.decoded[0];
  const auto floats = static_cast<size_t>(all.count * all.decoder->width());
  std::vector<std::byte>& bytes = result.owned.emplace_back(floats * sizeof(float));
  all.decoder->decode(all.first, all.count, reinterpret_cast<float*>(bytes.data()));
  result.parts.push_back({.name = name,
                          .dtype = DType::kF32,
                          .shape = {all.count, all.decoder->width()},
                          .bytes = bytes});
  return result;
}

}  // namespace

WeightRows Weights::whole(const Bound& bound) const {
  WeightRows rows = whole_to_pack(bound);
  return rows.decoded.empty() ? std::move(rows) : decoded_now(rows, bound.view.name);
}

WeightRows Weights::whole_to_pack(const Bound& bound) const {
  WeightRows rows;
  const auto decode = [&](std::unique_ptr<RowDecoder> decoder) {
    rows.decoded.push_back({decoder.get(), 0, bound.view.shape[0]});
    rows.decoders.push_back(std::move(decoder));
  };
  if (bound.coded && bound.layout == Layout::kOutInterleaved) {
    decode(std::make_unique<DeinterleavedRows>(*bound.coded, bound.coded->rows()));
  } else if (bound.coded) {
    rows.decoded.push_back({bound.coded, 0, bound.coded->rows()});
  } else if (const LinearQuantization* scaled = bound.quantization) {
    decode(std::make_unique<BlockScaledRows>(bound.view, scaled->weight_scale, scaled->block_rows,
                                             scaled->block_columns));
  } else if (bound.block_scale) {
    decode(std::make_unique<BlockScaledRows>(
        bound.view, *bound.block_scale, config_->weight_block_rows, config_->weight_block_columns));
  } else if (bound.layout == Layout::kInOut) {
    return transposed(bound.view);
  } else if (bound.layout == Layout::kInOutInterleaved) {
    return deinterleaved(transposed(bound.view).parts[0]);
  } else if (bound.layout == Layout::kOutInterleaved) {
    return deinterleaved(bound.view);
  } else {
    rows.parts.push_back(bound.view);
  }
  return rows;
}

/// Rows of a role inside a fused tensor, which is one part.
WeightRows Weights::cut(WeightRows whole, int64_t layer, Role role, Role fused_role) const {
  const std::vector<TensorView> parts = std::exchange(whole.parts, {});
  const std::vector<DecodedRows> decoded = std::exchange(whole.decoded, {});
  const std::vector<float> scales = std::exchange(whole.row_scales, {});
  const int64_t rows = decoded.empty() ? parts[0].shape[0] : decoded[0].count;
  for (const auto& [begin, count] : row_ranges(role, fused_role, rows, *config_, layer)) {
    if (decoded.empty())
      whole.parts.push_back(rows_of(parts[0], begin, count));
    else
      whole.decoded.push_back({decoded[0].decoder, begin, count});
    if (!scales.empty())
      whole.row_scales.insert(whole.row_scales.end(), scales.begin() + begin,
                              scales.begin() + begin + count);
  }
  return whole;
}

}  // namespace kvcal
