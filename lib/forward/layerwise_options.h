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
  int64_t batch_tokens = 0;  ///< tokens that go through a layer together; 0: as the backend likes
  /// Bytes, of the whole process on a host, of the backend's memory elsewhere; hidden states past
  /// it live elsewhere (HiddenStates).
  std::optional<uint64_t> memory_limit = {};
  /// The later request (LayerForward::request): the plan keeps memory for it.
  ObservationRequest observation = {};
  bool is_restored = false;           ///< restore_hidden will be called: nothing is embedded
  bool shows_hidden = false;          ///< show_hidden will be called: memory is kept for it
  LayerBytes* layer_bytes = nullptr;  ///< how layers come, borrowed; null: from the mapped files
  std::filesystem::path scratch_folder = {};  ///< of their file, on a host
  // On a host:
  uint64_t process_bytes = 0;  ///< of the limit, what the process takes beside the forward pass
  /// The most that the process can take; the limit where none is given.
  std::optional<uint64_t> process_can_take = {};
};

}  // namespace kvcal
