#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "backend/backend.h"
#include "forward/observation_request.h"
#include "stored/layer_bytes.h"

namespace kvcal {

struct LayerwiseOptions {
  ComputeType compute_type = ComputeType::kFloat32;
  int64_t batch_tokens = 0;  ///< tokens that go through a layer together; 0: the backend's choice
  /// Limit in bytes: of the whole process on a host, else of the backend's memory. HiddenStates
  /// spills beyond it.
  std::optional<uint64_t> memory_limit = {};
  /// The later request (LayerForward::request), for which the plan reserves memory.
  ObservationRequest observation = {};
  /// Tokens of the longest sample of the whole run; 0: of those given.
  int64_t longest_sample = 0;
  bool is_restored = false;           ///< restore_hidden will be called: no embedding runs
  bool shows_hidden = false;          ///< show_hidden will be called: memory is reserved for it
  LayerBytes* layer_bytes = nullptr;  ///< source of bytes, borrowed; null: mapped files
  std::filesystem::path scratch_folder = {};  ///< for hidden states, on a host
  // On a host:
  uint64_t process_bytes = 0;  ///< the process's memory beside the forward pass
  /// Most memory that the process can get; the limit where no memory_limit is given.
  std::optional<uint64_t> process_can_take = {};
};

}  // namespace kvcal
