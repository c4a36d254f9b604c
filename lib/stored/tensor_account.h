#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "family/model_config.h"

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

/// Ends of the names of codes, where they are not called ".weight".
inline constexpr std::array<std::string_view, 2> kNamesOfCodes{".weight_packed", ".qweight"};

/// Whether the last part of a tensor's name is one that forms give to codes, or to scales and zero
/// points of codes: "weight_scale", "qweight", "SCB".
bool is_name_of_codes(std::string_view last_part);

}  // namespace kvcal
