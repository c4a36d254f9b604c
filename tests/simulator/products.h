#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

namespace kvcal::gpu::simulator {

/// Asynchronous products of one thread. They run as late as they may, when the thread waits for
/// them, so that a missing wait gives wrong numbers.
class Products {
 public:
  /// Orders what the thread did to registers before the products that it starts next.
  void fence() { is_fenced_ = true; }
  /// False without a fence since the last wait.
  bool start(std::function<void()> product) {
    open_.push_back(std::move(product));
    return is_fenced_;
  }
  void commit() { groups_.push_back(std::exchange(open_, {})); }
  void await(size_t left) {
    while (groups_.size() > left) {
      for (const auto& product : groups_.front()) product();
      groups_.pop_front();
    }
    is_fenced_ = false;
  }
  bool empty() const { return open_.empty() && groups_.empty(); }

 private:
  std::vector<std::function<void()>> open_;
  std::deque<std::vector<std::function<void()>>> groups_;
  bool is_fenced_ = false;
};

}  // namespace kvcal::gpu::simulator
