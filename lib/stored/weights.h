// One account of a checkpoint's tensors. Weights::account says of every tensor what it is for
// (TensorUse): run, a scale of described codes, aside, undescribed or unknown. Weights throws
// what is wrong in it, check_described what a writer must not copy, and `verify` tells it.
// Problems of lm_head are kept apart (head_problem), for K and V need none; check_head is the
// door to probabilities.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/pack_shape.h"
#include "checkpoint/model_dir.h"
#include "core/number.h"
#include "family/architecture.h"
#include "family/expected_tensors.h"
#include "family/model_config.h"
#include "stored/read_model_config.h"

namespace kvcal {

/// What a tensor of a checkpoint is for.
enum class TensorUse : uint8_t {
  kRun,          ///< in the family's table: numbers, or codes that the config describes
  kScale,        ///< of K and V, or of described codes: their scales and zero points
  kAside,        ///< of nothing that K and V depend on: a tower, another head, a draft
  kUndescribed,  ///< codes of a weight that runs, or scales of such, that no config describes
  kUnknown,      ///< nothing explains it
};

/// Whether a checkpoint with the tensor can be read.
constexpr bool is_explained(TensorUse use) {
  return use != TensorUse::kUndescribed && use != TensorUse::kUnknown;
}

struct AccountedTensor {
  std::string name;
  TensorUse use;
};

/// Every tensor of a checkpoint once, by names, dtypes and shapes alone. Weights::account makes it,
/// and Weights throws what is wrong in it, so that all commands agree.
struct TensorAccount {
  std::vector<AccountedTensor> tensors;  ///< by name
  /// What keeps the model from running, one line each: "missing: ", "misshapen: ", "unreadable: ",
  /// "unexpected: ", and those of CheckpointQuantization.
  std::vector<std::string> problems;
  std::string head_problem;  ///< Weights::head_problem

  /// The first codes or scales that no config describes; nullptr: there are none.
  const AccountedTensor* undescribed() const;
};

/// Throws one Error with all problems.
void check_account(const TensorAccount& account, const ModelConfig& config);

/// A line of problems: its parts, one after the other.
template <class... Parts>
std::string problem_line(const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  return line.str();
}

/// Ends of the names of codes, where they are not called ".weight".
inline constexpr std::array<std::string_view, 2> kNamesOfCodes{".weight_packed", ".qweight"};

/// Whether the last part of a tensor's name is one that formats give to codes, or to scales and
/// zero points of codes: "weight_scale", "qweight", "SCB".
bool is_name_of_codes(std::string_view last_part);

/// Rows of a matrix or a bias, one part after the other. Borrows from the ModelDir where the file
/// holds the rows; else owns transposed or dequantized copies.
struct WeightRows {
  std::vector<TensorView> parts = {};
  std::vector<std::vector<std::byte>> owned = {};
  /// A scale for each row of all parts, where parts are F8_E4M3 codes. Else empty.
  std::vector<float> row_scales = {};
  /// Rows that are decoded while they are packed. Then parts is empty.
  std::vector<DecodedRows> decoded = {};
  std::vector<std::unique_ptr<RowDecoder>> decoders = {};  ///< those that decoded borrows
};

class CodedMatrix;
struct CheckpointQuantization;
struct LinearQuantization;

/// All tensors of a checkpoint by their role in the forward pass. Borrows from the ModelDir.
class Weights {
 public:
  /// Checks names, shapes and dtypes of all tensors. Throws one Error that lists every missing,
  /// unexpected or misshapen tensor, those of lm_head apart (head_problem). quantization: of the
  /// same checkpoint, borrowed; null: weights are 16-bit or block-scaled, and products use numbers.
  Weights(const ModelDir& model_dir, const ModelConfig& config,
          const CheckpointQuantization* quantization = nullptr);

  /// What each tensor of a checkpoint is for, without throwing; arguments as above.
  static TensorAccount account(const ModelDir& model_dir, const ModelConfig& config,
                               const CheckpointQuantization* quantization);

  /// A tensor of a layer as the file holds it.
  struct LayerTensor {
    Role role;  ///< the tensor's own role, also where it is fused
    TensorView view;
    bool is_scale = false;  ///< holds the scales of the role's FP8 codes
  };
  /// All tensors that the layer reads, by role and index; a tensor that stacks experts gives one
  /// part for each. layer, here and below: kNoLayer means the tensors outside of the layers.
  std::vector<LayerTensor> tensors(int64_t layer) const;
  std::vector<LayerTensor> model_tensors() const { return tensors(kNoLayer); }

  const ModelDir& model_dir() const { return *model_dir_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }

  /// Whether the layer has the role, alone or in a fused tensor.
  bool has(int64_t layer, Role role) const;
  bool has(Role role) const { return has(kNoLayer, role); }
  /// Number of tensors of the role in the layer: experts or heads, else 1.
  int64_t count(int64_t layer, Role role) const;
  const TensorView& at(Role role, int64_t index = 0) const;
  /// Rows of the role in the order of the forward pass: cut out of fused tensors, transposed, and
  /// dequantized to F32 as needed. index: of an expert or a head.
  WeightRows rows(int64_t layer, Role role, int64_t index = 0) const;
  WeightRows rows(Role role, int64_t index = 0) const { return rows(kNoLayer, role, index); }
  /// As rows, but with codes still to be decoded: for Backend::pack_decoded.
  WeightRows rows_to_pack(int64_t layer, Role role, int64_t index = 0) const;
  WeightRows rows_to_pack(Role role, int64_t index = 0) const {
    return rows_to_pack(kNoLayer, role, index);
  }
  /// Quantization of the tensor that holds a role; null: none.
  const LinearQuantization* quantization(int64_t layer, Role role, int64_t index = 0) const;
  const LinearQuantization* quantization(Role role, int64_t index = 0) const {
    return quantization(kNoLayer, role, index);
  }
  /// Quantization of the Linear whose weight is output_embedding. A tied Linear has an input scheme
  /// of its own.
  const LinearQuantization* output_quantization() const;
  /// As rows, but returns the file's F8_E4M3 codes and scales. Only for tensors whose quantization
  /// scales rows.
  WeightRows codes(int64_t layer, Role role, int64_t index = 0) const;
  WeightRows codes(Role role, int64_t index = 0) const { return codes(kNoLayer, role, index); }
  /// Why lm_head cannot be multiplied by: it is missing, or of a format that is not read. K and V
  /// need none. Empty: it can.
  const std::string& head_problem() const { return head_problem_; }
  /// Throws Error where head_problem is not empty.
  void check_head() const;
  /// lm_head, or the embedding where the two are tied. check_head must pass.
  Role output_embedding() const;
  /// Tells the system that a layer's bytes are needed soon, or no longer. will_need may wait for a
  /// disk, and throws Interrupted.
  void will_need(int64_t layer) const;
  void drop(int64_t layer) const;
  /// drop of the bytes that rows(layer, role, index) read, or of the role's tensors of the whole
  /// model.
  void drop(int64_t layer, Role role, int64_t index) const;
  void drop(Role role) const;
  /// Most bytes that packing of one tensor has in memory: the mapped pages, and copies where it
  /// makes them.
  uint64_t largest_read_bytes(const Backend& backend) const;

 private:
  struct Bound {
    TensorView view;
    const TensorView* block_scale = nullptr;  ///< of FP8 weights without quantization
    Layout layout = Layout::kOutIn;
    const LinearQuantization* quantization = nullptr;
    const CodedMatrix* coded = nullptr;  ///< view has its codes, and its shape
  };
  using Table = std::map<std::pair<Role, int64_t>, Bound>;
  class Binder;

  const Table& table(int64_t layer) const;
  const Bound* find(int64_t layer, Role role, int64_t index) const;
  /// Tensor that holds a role, and the tensor's own role, which may be fused.
  std::pair<const Bound*, Role> holder(int64_t layer, Role role, int64_t index) const;
  void drop(const Bound& bound) const;
  static uint64_t read_bytes(const Bound& bound, const Backend& backend);
  WeightRows whole_to_pack(const Bound& bound) const;
  WeightRows cut(WeightRows whole, int64_t layer, Role role, Role fused_role) const;

  const ModelDir* model_dir_;
  const ModelConfig* config_;
  Table model_;
  std::vector<Table> layers_;
  const LinearQuantization* tied_head_ = nullptr;
  std::string head_problem_;
};

/// Throws Error where Weights does, and for a head of codes that the config does not describe: what
/// writes a checkpoint with such tensors would leave codes that nobody reads.
void check_described(const ModelDir& model_dir, const ModelConfig& config,
                     const CheckpointQuantization& quantization);

/// Converts parts of F32, F16, BF16 or F8_E8M0 to float32.
std::vector<float> as_float32(std::span<const TensorView> parts);

/// Source of the bytes that the views of Weights point to. Threads that pack layers call it, in the
/// order of the layers.
class LayerBytes {
 public:
  virtual ~LayerBytes() = default;
  /// Begins to fetch the layer, where that can run beside other work. Throws Interrupted.
  virtual void will_need(int64_t layer) = 0;
  /// Returns when the layer's tensors can be read. Throws Error where they are not available.
  virtual void bring(int64_t layer) = 0;
  /// Ends the use of the layer, packed or failed.
  virtual void drop(int64_t layer) noexcept = 0;
};

/// Reads the mapped files through the system's page cache. Borrows.
class MappedLayers : public LayerBytes {
 public:
  explicit MappedLayers(const Weights& weights) : weights_(weights) {}
  void will_need(int64_t layer) override { weights_.will_need(layer); }
  void bring(int64_t) override {}
  void drop(int64_t layer) noexcept override { weights_.drop(layer); }

 private:
  const Weights& weights_;
};

/// Hash of the bytes of the tensors outside of the layers that a pass over these tokens reads: of
/// the embeddings of tokens their rows, of others all, and not the output embedding. Never 0.
uint64_t model_hash(const Weights& weights, const std::set<TokenId>& ids);

/// Calls act(file, bytes) for the shard that holds the tensor.
template <class Act>
void with_mapping(const ModelDir& model_dir, const TensorView& tensor, const Act& act) {
  for (const SafetensorsFile& shard : model_dir.shards()) {
    const auto file = shard.file().bytes();
    if (tensor.bytes.data() >= file.data() && tensor.bytes.data() < file.data() + file.size())
      act(shard.file(), tensor.bytes);
  }
}

/// Tells the system that the tensor's bytes are no longer needed.
inline void drop_pages(const ModelDir& model_dir, const TensorView& tensor) {
  with_mapping(model_dir, tensor, [](const MappedFile& file, auto bytes) { file.drop(bytes); });
}

}  // namespace kvcal
