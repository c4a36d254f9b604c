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

PackedLayer LayerPrefetch::pack(int64_t layer, LayerParts parts) {
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
  return pack_layer(weights_, config_, layer, parts, backend_, type_);
}

const PackedLayer& LayerPrefetch::bring(int64_t layer, LayerParts parts) {
  if (index_ == layer && covers(parts_, parts)) return packed_;
  packed_ = PackedLayer{};
  index_ = -1;
  if (coming_.valid()) {
    const bool is_wanted = coming_index_ == layer && covers(coming_parts_, parts);
    std::future<PackedLayer> coming = std::exchange(coming_, {});
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
  if (!backend_.packs_beside() || next > last_) return;
  coming_index_ = next;
  coming_parts_ = next == last_ ? last_parts_ : LayerParts::kAll;
  coming_ = std::async(std::launch::async,
                       [this, next, parts = coming_parts_] { return pack(next, parts); });
}

}  // namespace kvcal
