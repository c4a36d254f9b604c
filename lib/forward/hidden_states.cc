#include "forward/hidden_states.h"

#include <algorithm>

#include "core/error.h"
#include "core/number.h"
#include "core/pages.h"

namespace kvcal {

HiddenStates::HiddenStates(Backend& backend, int64_t width, std::vector<int64_t> batch_tokens,
                           const HiddenRoom& room)
    : backend_(backend), width_(width), batch_tokens_(std::move(batch_tokens)) {
  size_t bytes = 0, longest = 0;
  for (size_t batch = 0; batch < batch_tokens_.size(); ++batch) {
    offsets_.push_back(bytes);
    bytes += bytes_of(batch);
    longest = std::max(longest, bytes_of(batch));
  }
  // A device must hold two batches anyway.
  const bool fits = !room.bytes || bytes <= *room.bytes;
  if (fits || (!backend.is_host() && batch_tokens_.size() <= 2)) {
    resident_ = backend.allocate(bytes);
  } else if (backend.is_host()) {
    scratch_.emplace(room.scratch_folder, bytes);
  } else {
    pinned_ = backend.allocate_pinned(bytes);
    for (Buffer& turn : turns_) turn = backend.allocate(longest);
  }
}

HiddenStates::~HiddenStates() {
  try {
    if (coming_) backend_.await_fetches();  // so that nothing is written into what is freed
  } catch (...) {
    // A backend that fails here has already reported an error.
  }
}

size_t HiddenStates::bytes_of(size_t batch) const {
  return static_cast<size_t>(batch_tokens_[batch] * width_) * sizeof(float);
}

void HiddenStates::walk(Access access, const Visit& visit) {
  if (pinned_.size() > 0) return walk_pinned(access, visit);
  if (scratch_) return walk_scratch(access, visit);
  for (size_t batch = 0; batch < batch_tokens_.size(); ++batch)
    visit(batch, resident_.as<float>() + offsets_[batch] / sizeof(float));
}

/// Mapped pages count as the process's memory, so only those of one batch are held at a time. Where
/// memory is free the system caches them anyway, and they return at little cost.
void HiddenStates::walk_scratch(Access access, const Visit& visit) {
  const auto part = [&](size_t batch) {
    return std::span(scratch_->data() + offsets_[batch], bytes_of(batch));
  };
  for (size_t batch = 0; batch < batch_tokens_.size(); ++batch) {
    if (access != Access::kWrite && batch + 1 < batch_tokens_.size())
      will_need_pages(part(batch + 1));
    visit(batch, reinterpret_cast<float*>(part(batch).data()));
    release_pages(part(batch));
  }
}

void HiddenStates::fetch(size_t batch, size_t turn) {
  backend_.fetch(pinned_.data() + offsets_[batch], {turns_[turn].data(), bytes_of(batch)});
  coming_ = batch;
}

void HiddenStates::walk_pinned(Access access, const Visit& visit) {
  for (size_t batch = 0; batch < batch_tokens_.size(); ++batch) {
    // Also before a write: a write-back from this buffer may still run, and only a fetch surely
    // comes after it.
    if (coming_ != batch) fetch(batch, turn_);
    backend_.await_fetches();
    coming_.reset();
    const size_t next = (batch + 1) % batch_tokens_.size();
    fetch(next, 1 - turn_);
    visit(batch, turns_[turn_].as<float>());
    if (access != Access::kRead)
      backend_.write_back({turns_[turn_].data(), bytes_of(batch)},
                          pinned_.data() + offsets_[batch]);
    turn_ = 1 - turn_;
  }
}

}  // namespace kvcal
