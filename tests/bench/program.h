#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

namespace kvcal::bench {

/// The exit status of a measuring program: 0, or 1 after "error: ..." where its body throws.
template <class Body>
int run_program(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

/// The numbers of a list such as "64,128".
inline std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream list(text);
  for (std::string one; std::getline(list, one, ',');) numbers.push_back(std::stoll(one));
  return numbers;
}

}  // namespace kvcal::bench
