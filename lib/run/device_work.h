#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/json.h"

namespace kvcal {

// What a run's devices did: the algorithms of their matrix library, and the time of their parts.

/// The choices of all, equal ones once.
std::vector<ProductChoice> product_choices_of(std::span<const std::unique_ptr<Backend>> backends);
/// Seconds of each part, of all together; waits for them.
std::vector<PartTime> part_times_of(std::span<const std::unique_ptr<Backend>> backends);

/// For the manifest; null where there is none.
Json products_json(std::span<const ProductChoice> choices);
/// Tables of both, of those that there are.
std::string device_work_text(std::span<const ProductChoice> choices,
                             std::span<const PartTime> parts);

}  // namespace kvcal
