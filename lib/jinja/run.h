#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/shown_text.h"
#include "core/utf8.h"

namespace kvcal {

/// Bounds for templates of strangers.
struct TemplateLimits {
  size_t max_steps = 10'000'000;  ///< evaluated nodes; long texts count once for every 64 bytes
  size_t max_output_bytes = size_t{32} << 20;   ///< also the longest text a template may build
  size_t max_memory_bytes = size_t{128} << 20;  ///< all that one rendering holds, output included
  size_t max_template_bytes = size_t{1} << 20;
};

namespace jinja {

/// A part of a message. Texts are cut where a message ends, for a template's may be of any length.
template <class Part>
decltype(auto) message_part(const Part& part) {
  if constexpr (!std::is_array_v<Part> && std::is_convertible_v<const Part&, std::string_view>) {
    std::string_view text(part);
    if (text.size() <= kMostMessageBytes) return std::string(text);
    text = text.substr(0, kMostMessageBytes);
    text.remove_suffix(utf8::unfinished_size(text));
    return std::string(text) + "...";
  } else {
    return (part);
  }
}

/// kvcal::fail, which it hides: messages of templates take no memory that a template chooses.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  kvcal::fail(message_part(parts)...);
}

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

class Run;
class Value;

/// Pays for an allocation: for its bytes, and for filling them. Throws Error past a limit.
inline void take_memory(Run& run, uint64_t bytes);
inline void give_back_memory(Run& run, uint64_t bytes) noexcept;

/// The allocator of everything that grows while a template runs. The Run is told before memory is
/// taken, so nothing can be built past a limit. It has no default: a container without a Run does
/// not compile.
template <class T>
class Metered {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Metered(Run& run) : run_(&run) {}  // NOLINT: containers are made from a Run
  template <class U>
  Metered(const Metered<U>& other) : run_(&other.run()) {}  // NOLINT: allocators convert

  T* allocate(size_t count) {
    take_memory(*run_, count * sizeof(T) + kOverhead);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* items, size_t count) noexcept {
    give_back_memory(*run_, count * sizeof(T) + kOverhead);
    std::allocator<T>().deallocate(items, count);
  }
  Run& run() const { return *run_; }
  friend bool operator==(const Metered& a, const Metered& b) { return a.run_ == b.run_; }

 private:
  static constexpr uint64_t kOverhead = 2 * sizeof(void*);  // of an allocation
  Run* run_;
};

template <class T>
using Vector = std::vector<T, Metered<T>>;
using Values = Vector<Value>;
/// A text under construction, UTF-8.
using Text = std::basic_string<char, std::char_traits<char>, Metered<char>>;

/// One rendering's memory and what it has used of its limits. Nothing that a value points to is
/// freed before the rendering ends, so values are plain pointers and cycles need no care.
///
/// Costs have two doors, and no method can go around them: the bytes of a text are read through
/// text_of, and memory is taken through Metered. What takes longer than its arguments are long,
/// charges by itself.
class Run {
 public:
  explicit Run(const TemplateLimits& limits) : limits_(limits) {}

  /// A new object that lives as long as the Run.
  template <class T, class... Parts>
  T* make(Parts&&... parts) {
    constexpr size_t kOverhead = 8 * sizeof(void*);  // of the allocation and of the list of objects
    charge_memory(sizeof(T) + kOverhead);
    auto owned = std::make_unique<T>(std::forward<Parts>(parts)...);
    T* object = owned.get();
    objects_.push_back(std::move(owned));
    return object;
  }
  Text text(std::string_view start = {}) { return Text(start, Metered<char>(*this)); }
  /// text, kept as long as the Run.
  std::string_view keep(Text text) {
    check_size(text.size());
    text.shrink_to_fit();  // as long as it lives, it holds its bytes and no room to grow
    constexpr size_t kOverhead = sizeof(void*);  // of the list of texts
    charge_memory(sizeof(Text) + kOverhead);
    return texts_.emplace_back(std::move(text));
  }
  /// The bytes of a str, which are paid for with each reading.
  std::string_view text_of(const Value& value);

  /// Counts work; throws Error when the template has used all of its steps, Interrupted when the
  /// user asked to stop.
  void charge(uint64_t steps = 1) {
    const uint64_t before = steps_;
    steps_ += steps;
    if (steps_ > limits_.max_steps || steps_ < before)
      fail("the template needs more than ", limits_.max_steps, " steps, the limit");
    if (steps_ / kStepsToAsk != before / kStepsToAsk) throw_if_interrupted();
  }
  void charge_bytes(uint64_t bytes) { charge(bytes / 64); }
  void charge_memory(uint64_t bytes) {
    if (bytes > limits_.max_memory_bytes - memory_)
      fail("the template needs more than ", limits_.max_memory_bytes,
           " bytes of memory, the limit");
    memory_ += bytes;
  }
  void give_back_memory(uint64_t bytes) noexcept { memory_ -= bytes; }
  /// Throws Error if a text of that many bytes is longer than a template may build.
  void check_size(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes)
      fail("a text of ", bytes, " bytes is longer than the limit of ", limits_.max_output_bytes);
  }
  const TemplateLimits& limits() const { return limits_; }
  uint64_t steps() const { return steps_; }
  uint64_t memory() const { return memory_; }

 private:
  friend class Depth;
  static constexpr uint64_t kStepsToAsk = 4096;
  TemplateLimits limits_;
  uint64_t steps_ = 0, memory_ = 0;
  int depth_ = 0;
  std::deque<Text> texts_;
  std::deque<std::unique_ptr<Object>> objects_;  // a vector would double, unpaid
};

inline void take_memory(Run& run, uint64_t bytes) {
  run.charge_memory(bytes);
  run.charge_bytes(bytes);
}
inline void give_back_memory(Run& run, uint64_t bytes) noexcept {
  run.give_back_memory(bytes);
}

/// std::stable_sort; the buffer that it takes is paid for.
template <class T, class Less>
void sort_stably(Run& run, Vector<T>& items, const Less& less) {
  const uint64_t buffer = items.size() * sizeof(T);
  run.charge_memory(buffer);
  std::stable_sort(items.begin(), items.end(), less);
  run.give_back_memory(buffer);
}

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
