#pragma once

#include "kernels/gpu/device.h"
#include "kernels/gpu/kv_number.h"

// Exact conversion of stored KV elements to float32 a word at a time, by the chip's own
// instructions where it has them. NaN stays NaN, without its payload.
namespace kvcal::gpu {

__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[1], float) {
  numbers[0] = float_of(word);
}
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[2], BF16) {
  numbers[0] = float_of(word << 16);
  numbers[1] = float_of(word & 0xffff0000u);
}
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[2], F16) {
  floats_of_halves(word, numbers[0], numbers[1]);
}
template <fp8::Format kFormat>
__device__ inline void numbers_of_word(uint32_t word, float (&numbers)[4], fp8::Code<kFormat>) {
  if (decodes_by_chip(kFormat)) {
    uint32_t low, high;
    decode_codes_by_chip(word, kFormat, low, high);
    floats_of_halves(low, numbers[0], numbers[1]);
    return floats_of_halves(high, numbers[2], numbers[3]);
  }
  KVCAL_UNROLL
  for (int i = 0; i < 4; ++i)
    numbers[i] = number_of(fp8::Code<kFormat>{static_cast<uint8_t>(word >> (8 * i))});
}

}  // namespace kvcal::gpu
