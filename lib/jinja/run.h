#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace kvcal {

/// Bounds for templates of strangers.
struct TemplateLimits {
  size_t max_steps = 10'000'000;  ///< evaluated nodes; long texts count once for every 64 bytes
  size_t max_output_bytes = size_t{32} << 20;   ///< also the longest text a template may build
  size_t max_memory_bytes = size_t{128} << 20;  ///< all that one rendering makes, output apart
  size_t max_template_bytes = size_t{1} << 20;
};

namespace jinja {

/// An object that a value may point to. Owned by the Run that made it.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

/// How deep values may nest and evaluation may recurse; keeps the stack of a thread far from its
/// end.
inline constexpr int kMaxDepth = 1000;

/// One rendering's memory and what it has used of its limits. Nothing is freed before the rendering
/// ends, so values are plain pointers and cycles need no care; max_memory_bytes bounds the whole.
class Run {
 public:
  explicit Run(const TemplateLimits& limits) : limits_(limits) {}

  /// A new object that lives as long as the Run.
  template <class T, class... Parts>
  T* make(Parts&&... parts) {
    charge_memory(sizeof(T) + 2 * sizeof(void*));
    auto owned = std::make_unique<T>(std::forward<Parts>(parts)...);
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }
  /// text, kept as long as the Run.
  std::string_view keep(std::string text) {
    check_size(text.size());
    charge_bytes(text.size());
    charge_memory(text.size() + sizeof(std::string));
    return texts_.emplace_back(std::move(text));
  }

  /// Counts work; throws Error when the template has used all of its steps.
  void charge(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > limits_.max_steps)
      fail("the template needs more than ", limits_.max_steps, " steps, the limit");
  }
  void charge_bytes(uint64_t bytes) { charge(bytes / 64); }
  void charge_memory(uint64_t bytes) {
    memory_ += bytes;
    if (memory_ > limits_.max_memory_bytes)
      fail("the template needs more than ", limits_.max_memory_bytes,
           " bytes of memory, the limit");
  }
  /// Throws Error if a text of that many bytes is longer than a template may build.
  void check_size(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes)
      fail("a text of ", bytes, " bytes is longer than the limit of ", limits_.max_output_bytes);
  }
  const TemplateLimits& limits() const { return limits_; }

 private:
  friend class Depth;
  TemplateLimits limits_;
  uint64_t steps_ = 0, memory_ = 0;
  int depth_ = 0;
  std::deque<std::string> texts_;
  std::vector<std::unique_ptr<Object>> objects_;
};

/// Stands in every function that recurses over values or calls.
class Depth {
 public:
  explicit Depth(Run& run) : run_(run) {
    if (++run_.depth_ > kMaxDepth) {
      --run_.depth_;
      fail("the template recurses or nests deeper than ", kMaxDepth, " levels");
    }
  }
  ~Depth() { --run_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Run& run_;
};

}  // namespace jinja
}  // namespace kvcal
