// Parses every kernel of the program for the chip that the judge stands for, so that an instruction
// that the judge does not know shows before a test happens to run it. --names: prints their names.
#include <cstdio>
#include <string_view>

#include "judge.h"
#include "kernels/backends.h"

int main(int argc, char** argv) {
  if (kvcal::gpu_device_name() != "cuda") return 1;  // and links the kernels
  const kvcal::ptx::Parsed parsed = kvcal::ptx::parse_everything();
  if (argc > 1 && std::string_view(argv[1]) == "--names")
    for (const std::string& name : parsed.kernels) std::printf("%s\n", name.c_str());
  else
    std::printf("%zu kernels, %zu instructions\n", parsed.kernels.size(), parsed.instructions);
  return parsed.kernels.empty() ? 1 : 0;
}
