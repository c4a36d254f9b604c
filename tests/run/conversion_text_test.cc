#include "run/convert_checkpoint.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

LayerLoss loss(int64_t layer, double k_octaves) {
  return {.layer = layer,
          .k_scale = 0.5f,
          .v_scale = 0.25f,
          .k_written = 0.5f,
          .v_written = 0.5f,
          .k_octaves = k_octaves,
          .v_octaves = 0.0};
}

ConversionResult result_of(std::vector<LayerLoss> layers) {
  return {.config = {}, .losses = {{.format = "tgi", .layers = std::move(layers)}}};
}

}  // namespace

TEST_CASE("conversion text: the source's scales, and weights that stay") {
  ConversionResult result{.config = {}};
  result.scales_format = "modelopt";
  result.scales_path = "/model";
  result.num_scaled_layers = 2;
  result.kept_weights = "W4A16";
  CHECK(conversion_text(result, true) ==
        "scales: modelopt of 2 layers, from /model\nweights: W4A16, left as they are\n");
  result.kept_weights.clear();
  result.num_rewritten_linears = 14;
  CHECK(conversion_text(result, true) ==
        "scales: modelopt of 2 layers, from /model\n"
        "weights: FP8, 14 with their codes, scales written anew\n");
}

TEST_CASE("conversion text: a format without losses is one line, without layers none") {
  CHECK(conversion_text(result_of({loss(0, 0.0), loss(1, 0.0)}), true) ==
        "tgi: 2 layers with the scales of the source\n");
  CHECK(conversion_text(result_of({}), true).empty());
}

TEST_CASE("conversion text: losses are a table, or the worst layer where it would be long") {
  const ConversionResult result = result_of({loss(0, 0.0), loss(1, 1.5), loss(2, 0.5)});
  const std::string worst =
      "tgi: the largest scale stands for several; 2 layers lose range for small values, of E4M3's "
      "17.8 octaves: the most in layers 1 (1.5), 2 (0.5)";
  CHECK(conversion_text(result, true) ==
        worst +
            "\nlayer  k_scale  v_scale  k_written  v_written  k_octaves  v_octaves\n"
            "    0      0.5     0.25        0.5        0.5          0          0\n"
            "    1      0.5     0.25        0.5        0.5        1.5          0\n"
            "    2      0.5     0.25        0.5        0.5        0.5          0\n");
  CHECK(conversion_text(result, false) == worst + " (--verbose lists all layers)\n");
}
