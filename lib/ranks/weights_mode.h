#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "ranks/communicator.h"
#include "ranks/rank_layer_bytes.h"
#include "stored/weights.h"

namespace kvcal {

/// How ranks get the bytes of layers.
enum class WeightsMode : uint8_t {
  kShared,    ///< one host, whose page cache all ranks share: each reads by itself, the disk once
  kExchange,  ///< each rank reads a part and has the rest from the others
  kLocal      ///< each rank reads all by itself
};
std::string_view name_of(WeightsMode mode);

struct WeightsChoice {
  WeightsMode mode = WeightsMode::kShared;
  // Measured, where that was needed; bytes a second, of the slowest rank while all do it.
  std::optional<double> read_rate = {};      ///< of files
  std::optional<double> exchange_rate = {};  ///< of what all ranks have together
};

/// wanted: or nothing: shared on one host; on several what takes less time, which is measured by
/// reading and exchanging some tens of megabytes. The same on every rank. Collective. Throws Error
/// for kShared on several hosts, and as reading does.
WeightsChoice choose_weights_mode(Communicator& ranks, const ModelDir& model_dir,
                                  std::optional<WeightsMode> wanted);

/// Makes the source of layers in that mode; null where this rank has no samples and so packs none.
/// Collective. users: devices of this rank that pack each layer. Borrows all but ranks.
std::unique_ptr<RankLayerBytes> make_layer_bytes(WeightsMode mode, Communicator& ranks,
                                                 const ModelDir& model_dir, const Weights& weights,
                                                 bool has_samples, int users);

/// Throws SharedError, naming rank and host, where a rank's checkpoint is another by
/// sampled_sha256. Collective.
void expect_same_model(Communicator& ranks, const ModelDir& model_dir);

}  // namespace kvcal
