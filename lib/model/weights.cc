#include "model/weights.h"

#include <algorithm>
#include <set>

#include "backend/upload.h"
#include "model/kv_scales.h"
#include "quant/half.h"

namespace kvcal {
namespace {

bool is_readable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

/// Collects everything that is wrong, so that one run tells it all.
class Problems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ > kMaxShown) return;
    std::ostringstream line;
    ((line << "\n  ") << ... << parts);
    text_ += line.str();
  }
  void fail_if_any(const ModelConfig& config) const {
    if (count_ == 0) return;
    const std::string more =
        count_ > kMaxShown ? "\n  and " + std::to_string(count_ - kMaxShown) + " more" : "";
    fail("the checkpoint does not hold a ", config.model_type, " of this config.json:", text_,
         more);
  }

 private:
  static constexpr int kMaxShown = 20;
  std::string text_;
  int count_ = 0;
};

Shape shape_of(const TensorRow& row, const ModelConfig& config) {
  Shape shape;
  for (const Dim dim : row.shape) shape.dims.push_back(config.size_of(dim));
  return shape;
}

const TensorView* bind(const ModelDir& model_dir, const std::string& name, const TensorRow& row,
                       const ModelConfig& config, Problems& problems) {
  const TensorView* tensor = model_dir.find(name);
  const Shape wanted = shape_of(row, config);
  if (!tensor) {
    problems.add("missing: ", name, " ", wanted);
  } else if (tensor->shape != wanted) {
    problems.add("misshapen: ", name, " is ", tensor->shape, ", expected ", wanted);
  } else if (!is_readable(tensor->dtype)) {
    problems.add("unreadable: ", name, " is ", tensor->dtype, ", expected F32, F16 or BF16");
  }
  return tensor;
}

}  // namespace

Weights::Weights(const ModelDir& model_dir, const ModelConfig& config) : model_dir_(&model_dir) {
  const Architecture& architecture = *config.architecture;
  Problems problems;
  std::set<std::string, std::less<>> expected;
  const auto bind_row = [&](const TensorRow& row, const std::string& name, auto& table) {
    expected.insert(name);
    if (config.has(row.presence)) table[row.role] = bind(model_dir, name, row, config, problems);
  };
  for (const TensorRow& row : architecture.model_tensors)
    bind_row(row, std::string(row.name), model_);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = std::string(architecture.layer_prefix) + std::to_string(layer) + ".";
    auto& table = layers_.emplace_back();
    for (const TensorRow& row : architecture.layer_tensors)
      bind_row(row, prefix + std::string(row.name), table);
  }
  for (const std::string& name : model_dir.tensor_names()) {
    const auto is_ignored = [&](std::string_view suffix) { return name.ends_with(suffix); };
    if (expected.contains(name) || is_kv_scale(name) ||
        std::ranges::any_of(architecture.ignored_suffixes, is_ignored))
      continue;
    problems.add("unexpected: ", name, " ", model_dir.tensor(name).shape);
  }
  problems.fail_if_any(config);
}

const TensorView* Weights::find(Role role) const {
  const auto it = model_.find(role);
  return it == model_.end() ? nullptr : it->second;
}

const TensorView* Weights::find(int64_t layer, Role role) const {
  const auto& table = layers_.at(static_cast<size_t>(layer));
  const auto it = table.find(role);
  return it == table.end() ? nullptr : it->second;
}

const TensorView& Weights::at(Role role) const {
  const TensorView* tensor = find(role);
  KVCAL_CHECK(tensor);
  return *tensor;
}

const TensorView& Weights::at(int64_t layer, Role role) const {
  const TensorView* tensor = find(layer, role);
  KVCAL_CHECK(tensor);
  return *tensor;
}

const TensorView& Weights::output_embedding() const {
  const TensorView* head = find(Role::kLmHead);
  return head ? *head : at(Role::kEmbedding);
}

namespace {

template <class Act>
void for_each_mapping(const ModelDir& model_dir, const std::map<Role, const TensorView*>& table,
                      Act act) {
  for (const auto& [role, tensor] : table)
    for (const SafetensorsFile& shard : model_dir.shards()) {
      const auto file = shard.file().bytes();
      if (tensor->bytes.data() >= file.data() && tensor->bytes.data() < file.data() + file.size())
        act(shard.file(), tensor->bytes);
    }
}

}  // namespace

void Weights::will_need(int64_t layer) const {
  if (layer >= static_cast<int64_t>(layers_.size())) return;
  for_each_mapping(
      *model_dir_, layers_[static_cast<size_t>(layer)],
      [](const MappedFile& file, std::span<const std::byte> bytes) { file.will_need(bytes); });
}

void Weights::drop(int64_t layer) const {
  for_each_mapping(
      *model_dir_, layers_.at(static_cast<size_t>(layer)),
      [](const MappedFile& file, std::span<const std::byte> bytes) { file.drop(bytes); });
}

namespace {

std::vector<float> as_float32(const TensorView& tensor) {
  const size_t count = element_count(tensor.shape);
  std::vector<float> values(count);
  if (tensor.dtype == DType::kF32) {
    std::copy_n(reinterpret_cast<const std::byte*>(tensor.bytes.data()), tensor.bytes.size(),
                reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::copy_n(tensor.bytes.data() + 2 * i, 2, reinterpret_cast<std::byte*>(&bits));
    values[i] = tensor.dtype == DType::kF16 ? to_float(F16{bits}) : to_float(BF16{bits});
  }
  return values;
}

/// The biases of the given roles one after the other; empty where the model has none.
Buffer upload_biases(const Weights& weights, int64_t layer, std::initializer_list<Role> roles,
                     Backend& backend) {
  std::vector<float> values;
  for (const Role role : roles)
    if (const TensorView* bias = weights.find(layer, role)) {
      const std::vector<float> part = as_float32(*bias);
      values.insert(values.end(), part.begin(), part.end());
    }
  if (values.empty()) return {};
  return upload<float>(values, backend);
}

}  // namespace

Buffer upload_float32(const TensorView& tensor, Backend& backend) {
  const std::vector<float> values = as_float32(tensor);
  return upload<float>(values, backend);
}

PackedLayer pack_layer(const Weights& weights, int64_t layer, LayerParts parts, Backend& backend,
                       ComputeType type) {
  const auto pack = [&](std::initializer_list<Role> roles) {
    std::vector<TensorView> views;
    for (const Role role : roles) views.push_back(weights.at(layer, role));
    return backend.pack(views, type);
  };
  PackedLayer packed;
  packed.input_norm = upload_float32(weights.at(layer, Role::kInputNorm), backend);
  packed.key_value = pack({Role::kKey, Role::kValue});
  packed.key_value_bias =
      upload_biases(weights, layer, {Role::kKeyBias, Role::kValueBias}, backend);
  if (parts == LayerParts::kKeyValue) return packed;
  packed.post_attention_norm = upload_float32(weights.at(layer, Role::kPostAttentionNorm), backend);
  packed.query = pack({Role::kQuery});
  packed.output = pack({Role::kOutput});
  packed.gate_up = pack({Role::kGate, Role::kUp});
  packed.down = pack({Role::kDown});
  packed.query_bias = upload_biases(weights, layer, {Role::kQueryBias}, backend);
  packed.output_bias = upload_biases(weights, layer, {Role::kOutputBias}, backend);
  packed.gate_up_bias = upload_biases(weights, layer, {Role::kGateBias, Role::kUpBias}, backend);
  packed.down_bias = upload_biases(weights, layer, {Role::kDownBias}, backend);
  return packed;
}

}  // namespace kvcal
