#pragma once

#include <cstddef>

// What a program that runs on the judge may ask it.
namespace kvcal::ptx {

struct Parsed {
  size_t kernels = 0, instructions = 0;
};
/// Parses every kernel of the program, launched or not. Ends the program where one has something
/// that the judge does not know.
Parsed parse_everything();

}  // namespace kvcal::ptx
