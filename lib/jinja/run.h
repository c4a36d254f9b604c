#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "core/utf8.h"

namespace kvcal {

/// Bounds for templates of strangers.
struct TemplateLimits {
  size_t max_steps = 10'000'000;  ///< evaluated nodes; long texts count once for every 64 bytes
  size_t max_output_bytes = size_t{32} << 20;   ///< also the longest text a template may build
  size_t max_memory_bytes = size_t{128} << 20;  ///< all that one rendering makes, output included
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

class Text;
class Value;

/// One rendering: what it made, and what it has used of its two budgets. Nothing that a value
/// points to is freed before the rendering ends, so values are plain pointers and cycles need no
/// care.
///
/// Steps are counted for evaluated nodes, walked items and the bytes of a text that are read
/// (text_of); memory is counted where values are made: objects (make), texts (Text), and the items
/// of lists and dicts (charge_items). What takes longer than its arguments are long, charges by
/// itself.
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
  /// text, kept as long as the Run.
  std::string_view keep(Text text);
  /// The bytes of a str, which are counted with each reading.
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
  /// Counts bytes before they are taken, and the work of filling them.
  void charge_memory(uint64_t bytes) {
    if (bytes > limits_.max_memory_bytes - memory_)
      fail("the template needs more than ", limits_.max_memory_bytes,
           " bytes of memory, the limit");
    memory_ += bytes;
    charge(bytes / kBytesAStep);
  }
  /// Counts items of a list before they are added, each with the room that a growing list holds.
  void charge_items(uint64_t count) { charge_memory(count * kItemBytes); }
  /// Counts the next part of a text that has size bytes. Throws Error if it would be longer than a
  /// template may build.
  void charge_text(uint64_t size, uint64_t more) {
    check_size(more > UINT64_MAX - size ? UINT64_MAX : size + more);
    if (more > limits_.max_memory_bytes - memory_) charge_memory(more);
    memory_ += more;
    charge((size + more) / kBytesAStep - size / kBytesAStep);
  }
  void charge_bytes(uint64_t bytes) { charge(bytes / kBytesAStep); }
  void check_size(uint64_t bytes) const {
    if (bytes > limits_.max_output_bytes)
      fail("a text of ", bytes, " bytes is longer than the limit of ", limits_.max_output_bytes);
  }

 private:
  friend class Depth;
  static constexpr uint64_t kStepsToAsk = 4096, kBytesAStep = 64, kItemBytes = 32;
  TemplateLimits limits_;
  uint64_t steps_ = 0, memory_ = 0;
  int depth_ = 0;
  std::deque<std::string> texts_;
  std::deque<std::unique_ptr<Object>> objects_;
};

/// A text under construction, UTF-8. Each part is counted before it is added.
class Text {
 public:
  explicit Text(Run& run) : run_(&run) {}
  Text(Run& run, std::string_view start) : run_(&run) { *this += start; }

  Text& operator+=(std::string_view part) {
    run_->charge_text(bytes_.size(), part.size());
    bytes_ += part;
    return *this;
  }
  Text& operator+=(char c) { return *this += std::string_view(&c, 1); }
  Text& operator+=(char32_t c) {
    return c < 0x80 ? *this += static_cast<char>(c) : *this += utf8::encode(c);
  }
  /// part, count times: all or, past the limit, nothing.
  void repeat(std::string_view part, uint64_t count) {
    uint64_t size = 0;
    if (__builtin_mul_overflow(uint64_t{part.size()}, count, &size)) size = UINT64_MAX;
    reserve(size);
    for (; size > 0 && count > 0; --count) *this += part;
  }
  /// Makes room for more bytes. Throws Error where they would be too many.
  void reserve(uint64_t more) {
    run_->check_size(more > UINT64_MAX - size() ? UINT64_MAX : size() + more);
    bytes_.reserve(size() + more);
  }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  operator std::string_view() const {
    return bytes_;
  }  // NOLINT: a text may be read where it stands

 private:
  friend class Run;
  Run* run_;
  std::string bytes_;
};

inline std::string_view Run::keep(Text text) {
  text.bytes_.shrink_to_fit();  // as long as it lives, it holds its bytes and no room to grow
  charge_memory(sizeof(std::string) + sizeof(void*));
  return texts_.emplace_back(std::move(text.bytes_));
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
