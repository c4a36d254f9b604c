#include "model/linear_amax.h"

#include <algorithm>

#include "core/error.h"

namespace kvcal {
namespace {

/// More inputs than a layer has beside its experts' two each.
constexpr int64_t kOtherInputs = 32;

}  // namespace

void merge_linear_amax(std::vector<LinearAmax>& amaxes, const std::vector<LinearAmax>& other) {
  const auto place = [](const LinearAmax& one) { return std::pair(one.role, one.index); };
  for (const LinearAmax& one : other) {
    const auto at = std::ranges::lower_bound(amaxes, place(one), {}, place);
    if (at == amaxes.end() || place(*at) != place(one)) {
      amaxes.insert(at, one);
      continue;
    }
    at->amax.value = std::max(at->amax.value, one.amax.value);
    at->nonfinite += one.nonfinite;
  }
}

LinearAmaxSlots::LinearAmaxSlots(const ModelConfig& config, Backend& backend)
    : backend_(backend), capacity_(kOtherInputs + 2 * config.moe.num_experts) {
  const auto count = static_cast<size_t>(capacity_);
  amax_ = backend.allocate(count * sizeof(float));
  nonfinite_ = backend.allocate(count * sizeof(uint64_t));
  take();
}

AmaxSlot LinearAmaxSlots::slot(Role role, int64_t index) {
  const auto next = static_cast<int64_t>(places_.size());
  const int64_t place = places_.try_emplace({role, index}, next).first->second;
  KVCAL_CHECK(place < capacity_);
  return {.amax = amax_.as<float>() + place, .nonfinite = nonfinite_.as<uint64_t>() + place};
}

std::vector<LinearAmax> LinearAmaxSlots::take() {
  std::vector<LinearAmax> result;
  if (!places_.empty()) {
    std::vector<float> amax(places_.size());
    std::vector<uint64_t> nonfinite(places_.size());
    backend_.copy_out(amax_.data(), std::as_writable_bytes(std::span(amax)));
    backend_.copy_out(nonfinite_.data(), std::as_writable_bytes(std::span(nonfinite)));
    for (const auto& [key, place] : places_)
      result.push_back({key.first, key.second, Amax{amax[static_cast<size_t>(place)]},
                        nonfinite[static_cast<size_t>(place)]});
    places_.clear();
  }
  backend_.fill_zero(amax_.data(), amax_.size());
  backend_.fill_zero(nonfinite_.data(), nonfinite_.size());
  return result;
}

}  // namespace kvcal
