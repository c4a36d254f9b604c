#pragma once

#include <cstddef>
#include <string>
#include <vector>

// What a program that runs on the judge may ask it.
namespace kvcal::ptx {

struct Parsed {
  std::vector<std::string> kernels;  ///< mangled names
  size_t instructions = 0;
};
/// Parses every kernel of the program, launched or not. Ends the program where one has something
/// that the judge does not know.
Parsed parse_everything();

}  // namespace kvcal::ptx
