#include "forward/layer_prefetch.h"

#include <system_error>
#include <utility>

namespace kvcal {
namespace {

bool covers(LayerParts held, LayerParts wanted) {
  return held == wanted || held == LayerParts::kAll;
}

/// Drops the layer, also where packing fails.
struct Drop {
  LayerBytes& bytes;
  int64_t layer;
  ~Drop() { bytes.drop(layer); }
};

}  // namespace

LayerPrefetch::LayerPrefetch(const Weights& weights, const ModelConfig& config,
                             std::span<Backend* const> backends, ComputeType type,
                             LayerBytes* bytes, const ObservationRequest& request)
    : weights_(weights),
      config_(config),
      group_(backends.front()->make_pack_group(backends)),
      type_(type),
      mapped_(weights),
      bytes_(bytes ? *bytes : mapped_),
      last_(request.last_layer(config)),
      last_parts_(request.finishes_layers() || request.query ||
                          request.compares(request.last_layer(config), config)
                      ? LayerParts::kAll
                      : LayerParts::kKeyValue) {}

std::vector<PackedLayer> LayerPrefetch::pack(int64_t layer, LayerParts parts) {
  // Reads ahead from the disk while this layer is packed and computed: layer 0 first, then the next
  // layer each time.
  try {
    reading_ = std::async(std::launch::async, [this, layer] {
      if (layer == 0) bytes_.will_need(0);
      bytes_.will_need(layer + 1);
    });
  } catch (const std::system_error&) {  // no thread to be had: pages are read when they are needed
  }
  bytes_.bring(layer);
  const Drop drop{bytes_, layer};
  return pack_layer(weights_, config_, layer, parts, *group_, type_);
}

std::span<const PackedLayer> LayerPrefetch::bring(int64_t layer, LayerParts parts) {
  if (index_ == layer && covers(parts_, parts)) return packed_;
  packed_.clear();
  index_ = -1;
  if (coming_.valid()) {
    const bool is_wanted = coming_index_ == layer && covers(coming_parts_, parts);
    std::future<std::vector<PackedLayer>> coming = std::exchange(coming_, {});
    if (is_wanted) {
      packed_ = coming.get();
      index_ = layer;
      parts_ = coming_parts_;
    } else {
      coming.wait();
    }
  }
  if (index_ != layer) {
    packed_ = pack(layer, parts);
    index_ = layer;
    parts_ = parts;
  }
  start_next();
  return packed_;
}

void LayerPrefetch::start_next() {
  const int64_t next = index_ + 1;
  if (!group_->backends().front()->packs_beside() || next > last_) return;
  coming_index_ = next;
  coming_parts_ = next == last_ ? last_parts_ : LayerParts::kAll;
  coming_ = std::async(std::launch::async,
                       [this, next, parts = coming_parts_] { return pack(next, parts); });
}

}  // namespace kvcal
