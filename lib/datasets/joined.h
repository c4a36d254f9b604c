#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace kvcal {

/// Parts with a size() one after the other, counted through.
template <class Part>
class Joined {
 public:
  explicit Joined(std::vector<std::unique_ptr<Part>> parts) : parts_(std::move(parts)) {
    for (const auto& part : parts_) ends_.push_back(size() + part->size());
  }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<std::unique_ptr<Part>>& parts() const { return parts_; }

  /// The part that holds index, and which of its own it is.
  std::pair<const Part*, int64_t> find(int64_t index) const {
    const size_t part = part_of(index);
    return {parts_.at(part).get(), index - begin_of(part)};
  }
  void will_read(std::span<const int64_t> indices) const {
    std::vector<std::vector<int64_t>> own(parts_.size());
    for (const int64_t index : indices) {
      const size_t part = part_of(index);
      own.at(part).push_back(index - begin_of(part));
    }
    for (size_t part = 0; part < parts_.size(); ++part)
      if (!own[part].empty()) parts_[part]->will_read(own[part]);
  }

 private:
  size_t part_of(int64_t index) const {
    return static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  }
  int64_t begin_of(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace kvcal
