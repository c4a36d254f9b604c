// Presets for weights without data; that their arguments are compressed-tensors' is seen by
// tests/export/packed_copy_test.cc.
#include "recipe/presets.h"

#include "core/error.h"
#include "support/catch.h"

using namespace kvcal;

namespace {

std::string message(const std::string& name) {
  try {
    weight_scheme(name);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("weight_scheme: a preset by its name in any case") {
  const WeightScheme scheme = weight_scheme("w4a16_Asym");
  CHECK(scheme.name == "W4A16_ASYM");
  CHECK(scheme.weights.num_bits == 4);
  CHECK(scheme.weights.group_size == 128);
  CHECK_FALSE(scheme.weights.symmetric);
  CHECK_FALSE(scheme.inputs);
  CHECK(weight_scheme("MXFP4").inputs->dynamic);
}

TEST_CASE("weight_scheme: presets that are unknown, need data or do nothing") {
  CHECK(message("W4A61").starts_with("unknown scheme 'W4A61' (did you mean"));
  CHECK(message("FP8").find("choose FP8_DYNAMIC") != std::string::npos);
  CHECK(message("nvfp4").find("choose NVFP4A16") != std::string::npos);
  CHECK(message("UNQUANTIZED").find("it leaves weights as they are") != std::string::npos);
}
