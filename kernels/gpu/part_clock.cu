#include "kernels/gpu/part_clock.h"

namespace kvcal::gpu {
namespace {

/// Operations whose points are kept before they are read: those of some layers and batches, so that
/// the device has hardly any left to do when the host waits for the last.
constexpr size_t kMostSpans = 4096;

constexpr const char* kNames[] = {"products", "attention", "passes", "waits", "copies"};

}  // namespace

PartClock::Part PartClock::part_of(std::string_view operation) {
  if (operation.starts_with("matmul")) return kProducts;
  if (operation.starts_with("attention")) return kAttention;
  if (operation == kWait) return kWaits;
  if (operation == kCopy) return kCopies;
  return kPasses;
}

void PartClock::begin(std::string_view operation) {
  const Part part = part_of(operation);
  const bool is_part_of_outer = !open_.empty() && part != kWaits;
  open_.push_back(is_part_of_outer ? open_.back() : part);
  if (!is_part_of_outer) turn();
}

void PartClock::end() {
  const Part ended = open_.back();
  open_.pop_back();
  if (open_.empty() || open_.back() != ended) turn();
  if (open_.empty() && passed_.size() >= kMostSpans && !memory_.is_closed()) read_all();
}

void PartClock::turn() {
  if (now_) {
    now_->to.record(stream_);
    passed_.push_back(std::move(now_));
  }
  if (open_.empty() || memory_.is_closed()) return;
  if (free_.empty()) {
    now_ = std::make_unique<Span>();
  } else {
    now_ = std::move(free_.back());
    free_.pop_back();
  }
  now_->part = open_.back();
  now_->from.record(stream_);
}

void PartClock::read_all() {
  if (passed_.empty()) return;
  passed_.back()->to.synchronize();
  for (std::unique_ptr<Span>& span : passed_) {
    milliseconds_[span->part] += span->to.since(span->from);
    free_.push_back(std::move(span));
  }
  passed_.clear();
}

std::vector<PartTime> PartClock::times() {
  read_all();
  std::vector<PartTime> all;
  for (int part = 0; part < kNumParts; ++part)
    all.push_back({.part = kNames[part], .seconds = 1e-3 * milliseconds_[part]});
  return all;
}

}  // namespace kvcal::gpu
