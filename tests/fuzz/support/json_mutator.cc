#include "support/json_mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "core/json.h"
#include "support/fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace kvcal::fuzz {
namespace {

using Random = std::minstd_rand;

size_t below(Random& random, size_t count) {
  return std::uniform_int_distribution<size_t>(0, count - 1)(random);
}

std::string mutated_bytes(std::string_view text, size_t max_size) {
  std::string result(text);
  result.resize(std::max(max_size, text.size()));
  result.resize(
      LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(result.data()), text.size(), result.size()));
  return result;
}

/// Where values stand that may be changed, and the keys that the document has.
struct Places {
  std::vector<Json*> values, objects, arrays;
  std::vector<std::string> keys;
};

void collect(Json& value, Places& places) {
  places.values.push_back(&value);
  if (value.is_object()) {
    places.objects.push_back(&value);
    for (auto& [key, member] : value.get_ref<Json::object_t&>()) {
      places.keys.push_back(key);
      collect(member, places);
    }
  } else if (value.is_array()) {
    places.arrays.push_back(&value);
    for (Json& item : value) collect(item, places);
  }
}

Json interesting_value(Random& random) {
  static const std::array<Json, 28> kValues{Json(nullptr),
                                            Json(true),
                                            Json(false),
                                            Json(0),
                                            Json(1),
                                            Json(-1),
                                            Json(2),
                                            Json(3),
                                            Json(7),
                                            Json(127),
                                            Json(255),
                                            Json(256),
                                            Json(65536),
                                            Json(int64_t{1} << 31),
                                            Json(int64_t{1} << 53),
                                            Json(INT64_MAX),
                                            Json(INT64_MIN),
                                            Json(UINT64_MAX),
                                            Json(0.5),
                                            Json(-0.0),
                                            Json(1e-320),
                                            Json(1e308),
                                            Json(-1e308),
                                            Json(""),
                                            Json("0"),
                                            Json("\xef\xbf\xbd"),
                                            Json::array(),
                                            Json::object()};
  return kValues[below(random, kValues.size())];
}

void change_scalar(Json& value, Random& random) {
  const size_t choice = below(random, 4);
  if (value.is_string() && choice > 0) {
    const auto& text = value.get_ref<const std::string&>();
    value = mutated_bytes(text, text.size() + 16);
  } else if (value.is_number_integer() && choice > 1) {
    // Wraps around as unsigned numbers do.
    value = static_cast<int64_t>(value.get<uint64_t>() + below(random, 7) - 3);
  } else if (value.is_number_integer() && choice > 0) {
    value = static_cast<int64_t>(value.get<uint64_t>() * 2);
  } else {
    value = interesting_value(random);
  }
}

void change_object(Json& value, const Places& places, Random& random) {
  auto& members = static_cast<Json::object_t::Container&>(value.get_ref<Json::object_t&>());
  const size_t choice = below(random, 4);
  if (choice == 0 || members.empty()) {
    std::string key = places.keys.empty() ? "a" : places.keys[below(random, places.keys.size())];
    if (below(random, 4) == 0) key = mutated_bytes(key, key.size() + 4);
    members.emplace_back(std::move(key), *places.values[below(random, places.values.size())]);
    return;
  }
  const auto member = members.begin() + static_cast<ptrdiff_t>(below(random, members.size()));
  if (choice == 1) {
    // The key is const within the pair, so the member is made anew in its place.
    std::pair<std::string, Json> renamed{mutated_bytes(member->first, member->first.size() + 4),
                                         member->second};
    std::vector<std::pair<std::string, Json>> all;
    for (auto it = members.begin(); it != members.end(); ++it)
      all.push_back(it == member ? renamed : std::pair<std::string, Json>(it->first, it->second));
    members.clear();
    for (auto& [key, one] : all) members.emplace_back(std::move(key), std::move(one));
    return;
  }
  value.erase(std::string(member->first));
}

void change_array(Json& value, const Places& places, Random& random) {
  auto& items = value.get_ref<Json::array_t&>();
  const size_t choice = below(random, 4);
  if (choice == 0 || items.empty()) {
    items.push_back(*places.values[below(random, places.values.size())]);
  } else if (choice == 1) {
    items.erase(items.begin() + static_cast<ptrdiff_t>(below(random, items.size())));
  } else if (choice == 2) {
    std::swap(items[below(random, items.size())], items[below(random, items.size())]);
  } else {
    const Json doubled = items[below(random, items.size())];
    items.insert(items.begin() + static_cast<ptrdiff_t>(below(random, items.size())), doubled);
  }
}

void change(Json& root, Random& random) {
  Places places;
  collect(root, places);
  Json& value = *places.values[below(random, places.values.size())];
  const size_t choice = below(random, 8);
  if (choice == 0) {
    const Json other = *places.values[below(random, places.values.size())];
    value = other;
  } else if (choice == 1) {
    value = interesting_value(random);
  } else if (choice < 4 && !places.objects.empty()) {
    change_object(*places.objects[below(random, places.objects.size())], places, random);
  } else if (choice == 4 && !places.arrays.empty()) {
    change_array(*places.arrays[below(random, places.arrays.size())], places, random);
  } else if (value.is_object()) {
    change_object(value, places, random);
  } else if (value.is_array()) {
    change_array(value, places, random);
  } else {
    change_scalar(value, random);
  }
}

/// Copying and writing values recurse, which may not overflow the stack of the fuzzer.
bool nests_deep(std::string_view text) {
  constexpr int kMost = 200;
  int depth = 0, deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if (c == ']' || c == '}') --depth;
  }
  return deepest > kMost;
}

size_t put(const std::string& text, uint8_t* data, size_t max_size) {
  const size_t size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), size);
  return size;
}

}  // namespace

std::string mutated_json(std::string_view text, size_t max_size, unsigned int seed) {
  Random random(seed);
  if (below(random, 5) > 0 && !nests_deep(text)) {
    Json root = Json::parse(text, nullptr, false);
    if (!root.is_discarded()) {
      change(root, random);
      std::string result = root.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (result.size() <= max_size) return result;
    }
  }
  return mutated_bytes(text, max_size);
}

size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  return put(mutated_json(text_of(data, size), max_size, seed), data, max_size);
}

size_t mutate_json_parts(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  const std::vector<std::string_view> parts = parts_of(text_of(data, size), 1);
  Random random(seed);
  const size_t changed = below(random, parts.size());
  const size_t most = max_size - std::min(max_size, size - parts[changed].size());
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += kBetweenParts;
    if (i != changed)
      result += parts[i];
    else
      result += mutated_json(parts[i], most, seed);
  }
  return put(result, data, max_size);
}

size_t mutate_json_header(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  uint64_t length = 0;
  if (size >= kLengthBytes) std::memcpy(&length, data, kLengthBytes);
  Random random(seed);
  if (size < kLengthBytes || length > size - kLengthBytes || below(random, 5) == 0)
    return LLVMFuzzerMutate(data, size, max_size);
  const std::string_view rest = text_of(data, size).substr(kLengthBytes);
  const std::string tensors(rest.substr(length));
  const size_t most = max_size - std::min(max_size, kLengthBytes + tensors.size());
  const std::string header = mutated_json(rest.substr(0, length), most, seed);
  length = header.size();
  std::string result(reinterpret_cast<const char*>(&length), kLengthBytes);
  return put(result + header + tensors, data, max_size);
}

}  // namespace kvcal::fuzz
