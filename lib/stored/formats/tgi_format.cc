#include "stored/stored_format.h"

namespace kvcal {

constexpr KvScaleNames kTgiNames[]{
    {.name = "tgi", .k = ".kv_scale", .v = ".kv_scale", .keys = KeyPosition::kBeforeRope}};
extern constinit const StoredFormat kTgiFormat{.name = "tgi", .kv_names = kTgiNames};

}  // namespace kvcal
