#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/model_dir.h"
#include "ranks/communicator.h"
#include "ranks/exchanged_layers.h"
#include "stored/weights.h"

namespace kvcal {

/// Source of the layers' bytes with several ranks.
enum class WeightsMode : uint8_t {
  kShared,  ///< one host with a shared page cache: each rank reads by itself, the disk is read once
  kExchange,  ///< each rank reads a part and gets the rest from the others
  kLocal      ///< each rank reads everything by itself
};
std::string_view name_of(WeightsMode mode);

struct WeightsChoice {
  WeightsMode mode = WeightsMode::kShared;
  // Measured where needed; bytes a second of the slowest rank while all ranks work.
  std::optional<double> read_rate = {};      ///< of files
  std::optional<double> exchange_rate = {};  ///< of the bytes that all ranks hold together
};

/// Chooses wanted where given; else shared on one host, and on several hosts the faster mode,
/// measured by reading and exchanging some tens of megabytes. Equal on every rank. Collective.
/// Throws Error for kShared on several hosts, and as reading does.
WeightsChoice choose_weights_mode(Communicator& ranks, const ModelDir& model_dir,
                                  std::optional<WeightsMode> wanted);

/// Makes the source of layers in that mode; null where this rank has no samples and so packs none.
/// Collective. Borrows all but ranks.
std::unique_ptr<RankLayerBytes> make_layer_bytes(WeightsMode mode, Communicator& ranks,
                                                 const ModelDir& model_dir, const Weights& weights,
                                                 bool has_samples);

/// Throws SharedError, naming rank and host, where sampled_sha256 of a rank's checkpoint differs.
/// Collective.
void expect_same_model(Communicator& ranks, const ModelDir& model_dir);

}  // namespace kvcal
