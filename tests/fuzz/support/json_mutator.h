#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvcal::fuzz {

/// text changed at random in one place, as JSON where it is JSON: another value, a key renamed, a
/// member doubled, moved or left out; at times, and where it is none, in its bytes. At most
/// max_size bytes long. Same text and seed, same result.
std::string mutated_json(std::string_view text, size_t max_size, unsigned int seed);

/// Body of LLVMFuzzerCustomMutator for an input that is a JSON text.
size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned int seed);

/// The same for an input of several parts (parts_of), of which one is changed.
size_t mutate_json_parts(uint8_t* data, size_t size, size_t max_size, unsigned int seed);

/// The same for a file that begins with 8 bytes, the length of the JSON behind them: the length is
/// mended, and data follow it (safetensors).
size_t mutate_json_header(uint8_t* data, size_t size, size_t max_size, unsigned int seed);

}  // namespace kvcal::fuzz
