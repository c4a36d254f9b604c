#include "stored/weights.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/backend.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/pages.h"
#include "family/expected_tensors.h"
#include "stored/coded_matrix.h"
#include "stored/fp8_checkpoint.h"
#include "stored/weight_rows.h"

namespace kvcal {

const Weights::Table& Weights::table(int64_t layer) const {
  return layer == kNoLayer ? model_ : layers_.at(static_cast<size_t>(layer));
}

std::vector<Weights::LayerTensor> Weights::tensors(int64_t layer) const {
  std::vector<LayerTensor> all;
  for (const auto& [key, bound] : table(layer)) {
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

bool Weights::has(int64_t layer, Role role) const {
  return holder(layer, role, 0).first != nullptr;
}

int64_t Weights::count(int64_t layer, Role role) const {
  int64_t count = 0;
  while (find(layer, role, count)) ++count;
  return count;
}

const Weights::Bound* Weights::find(int64_t layer, Role role, int64_t index) const {
  const auto it = table(layer).find({role, index});
  return it == table(layer).end() ? nullptr : &it->second;
}

std::pair<const Weights::Bound*, Role> Weights::holder(int64_t layer, Role role,
                                                       int64_t index) const {
  if (const Bound* bound = find(layer, role, index)) return {bound, role};
  for (const Role fused_role : fused_roles_of(role))
    if (const Bound* bound = find(layer, fused_role, index)) return {bound, fused_role};
  return {nullptr, role};
}

const TensorView& Weights::at(Role role, int64_t index) const {
  const Bound* bound = find(kNoLayer, role, index);
  KVCAL_CHECK(bound);
  return bound->view;
}

const LinearQuantization* Weights::quantization(int64_t layer, Role role, int64_t index) const {
  const Bound* bound = holder(layer, role, index).first;
  return bound ? bound->quantization : nullptr;
}

const LinearQuantization* Weights::output_quantization() const {
  return tied_head_ ? tied_head_ : quantization(output_embedding());
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

WeightRows Weights::rows(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  WeightRows all = whole_to_pack(*bound);
  if (!all.decoded.empty()) all = decoded_now(all, bound->view.name);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::rows_to_pack(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound);
  WeightRows all = whole_to_pack(*bound);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
}

WeightRows Weights::codes(int64_t layer, Role role, int64_t index) const {
  const auto [bound, held_as] = holder(layer, role, index);
  KVCAL_CHECK(bound && bound->quantization && bound->quantization->scales_rows());
  const LinearQuantization& quantization = *bound->quantization;
  WeightRows all{.parts = {bound->view}};
  const std::vector<float> scales = as_float32(std::span(&quantization.weight_scale, 1));
  for (int64_t row = 0; row < bound->view.shape[0]; ++row)
    all.row_scales.push_back(scales[static_cast<size_t>(row / quantization.block_rows)]);
  return held_as == role ? std::move(all) : cut(std::move(all), layer, role, held_as);
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

void Weights::will_need(int64_t layer) const {
  if (layer >= static_cast<int64_t>(layers_.size())) return;
  for (const auto& [key, bound] : table(layer)) {
    if (is_looked_up(key.first)) continue;
    throw_if_interrupted();
    const auto fetch = [&](const TensorView& tensor) {
      with_mapping(*model_dir_, tensor,
                   [](const MappedFile& file, auto bytes) { file.will_need(bytes); });
    };
    fetch(bound.view);
    if (bound.coded) std::ranges::for_each(bound.coded->scales(), fetch);
  }
}

void Weights::drop(const Bound& bound) const {
  drop_pages(*model_dir_, bound.view);
  if (!bound.coded) return;
  for (const TensorView& scale : bound.coded->scales()) drop_pages(*model_dir_, scale);
}

void Weights::drop(int64_t layer) const {
  for (const auto& [key, bound] : table(layer)) drop(bound);
}

void Weights::drop(int64_t layer, Role role, int64_t index) const {
  if (const Bound* bound = holder(layer, role, index).first) drop(*bound);
}

void Weights::drop(Role role) const {
  for (int64_t i = 0; const Bound* bound = find(kNoLayer, role, i); ++i) drop(*bound);
}

uint64_t Weights::read_bytes(const Bound& bound, const Backend& backend) {
  const uint64_t mapped = bound.coded ? bound.coded->stored_bytes() : bound.view.bytes.size();
  if (bound.coded || bound.block_scale || bound.quantization)
    return mapped + backend.decoded_bytes(bound.view.shape[0], bound.view.shape[1]);
  // transposed and deinterleaved make one copy each.
  if (bound.layout == Layout::kOutIn) return mapped;
  return mapped * (bound.layout == Layout::kInOutInterleaved ? 3 : 2);
}

uint64_t Weights::largest_read_bytes(const Backend& backend) const {
  uint64_t largest = 0;
  for (const Table& layer : layers_)
    for (const auto& [key, bound] : layer)
      if (!is_looked_up(key.first)) largest = std::max(largest, read_bytes(bound, backend));
  return largest;
}

namespace {

/// Rows between two releases of pages: each may map 64 KiB.
constexpr int64_t kRowsUntilRelease = 1024;

class Hash {
 public:
  void add(std::span<const std::byte> bytes) {
    const std::array<uint64_t, 2> both{state_, hash64(bytes)};
    state_ = hash64(std::as_bytes(std::span(both)));
  }
  uint64_t value() const { return std::max(state_, uint64_t{1}); }

 private:
  uint64_t state_ = 1;
};

void add_rows(const TensorView& table, const std::set<TokenId>& ids, Hash& hash) {
  const int64_t rows = table.shape[0];
  const size_t width = table.bytes.size() / static_cast<size_t>(std::max<int64_t>(rows, 1));
  int64_t count = 0;
  for (const TokenId id : ids) {
    if (id < 0 || id >= rows) continue;  // refused where it is embedded
    hash.add(table.bytes.subspan(static_cast<size_t>(id) * width, width));
    if (++count % kRowsUntilRelease != 0) continue;
    throw_if_interrupted();
    release_pages(table.bytes);
  }
}

}  // namespace

uint64_t model_hash(const Weights& weights, const std::set<TokenId>& ids) {
  Hash hash;
  for (const Weights::LayerTensor& tensor : weights.model_tensors()) {
    if (tensor.role == Role::kLmHead || tensor.role == Role::kLmHeadBias) continue;
    const bool is_table =
        tensor.role == Role::kEmbedding || tensor.role == Role::kLayerInputEmbedding;
    if (is_table && !tensor.is_scale)
      add_rows(tensor.view, ids, hash);
    else
      hash.add(tensor.view.bytes);
    release_pages(tensor.view.bytes);
  }
  return hash.value();
}

}  // namespace kvcal
