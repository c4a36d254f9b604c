#include "quant/quant_scheme.h"

#include "support/catch.h"

using namespace kvcal;

namespace {

QuantArgs args_of(Strategy strategy, const char* observer) {
  QuantArgs args;
  args.type = QuantType::kFloat;
  args.strategy = strategy;
  args.observer = observer;
  return args;
}

}  // namespace

// A group of the config.json that llm-compressor 0.14 writes for FP8 weights and static inputs.
TEST_CASE("quant scheme: a config group as llm-compressor writes it") {
  const QuantScheme scheme{.targets = {"Linear"},
                           .weights = args_of(Strategy::kTensor, "memoryless_minmax"),
                           .input_activations = args_of(Strategy::kTensor, "static_minmax"),
                           .format = {}};
  CHECK(dump_json(to_json(scheme)) == R"({
  "format": "float-quantized",
  "input_activations": {
    "actorder": null,
    "block_structure": null,
    "dynamic": false,
    "group_size": null,
    "num_bits": 8,
    "observer": "static_minmax",
    "observer_kwargs": {},
    "scale_dtype": null,
    "strategy": "tensor",
    "symmetric": true,
    "type": "float",
    "zp_dtype": null
  },
  "output_activations": null,
  "targets": [
    "Linear"
  ],
  "weights": {
    "actorder": null,
    "block_structure": null,
    "dynamic": false,
    "group_size": null,
    "num_bits": 8,
    "observer": "memoryless_minmax",
    "observer_kwargs": {},
    "scale_dtype": null,
    "strategy": "tensor",
    "symmetric": true,
    "type": "float",
    "zp_dtype": null
  }
}
)");
}

TEST_CASE("quant scheme: the format follows from what is quantized, unless it is written") {
  QuantScheme scheme{.targets = {"Linear"}, .weights = {}, .input_activations = {}, .format = {}};
  CHECK(format_of(scheme) == CompressionFormat::kDense);
  scheme.input_activations = args_of(Strategy::kAttnHead, "static_minmax");
  CHECK(format_of(scheme) == CompressionFormat::kDense);
  scheme.weights = args_of(Strategy::kChannel, "mse");
  CHECK(format_of(scheme) == CompressionFormat::kFloatQuantized);
  scheme.input_activations.reset();
  CHECK(format_of(scheme) == CompressionFormat::kNaiveQuantized);
  scheme.format = CompressionFormat::kFloatQuantized;
  CHECK(format_of(scheme) == CompressionFormat::kFloatQuantized);
  CHECK(to_json(scheme)["format"] == "float-quantized");
  CHECK(to_json(scheme)["input_activations"].is_null());
}

TEST_CASE("quant scheme: formats have compressed-tensors' names") {
  CHECK(name_of(CompressionFormat::kDense) == "dense");
  CHECK(name_of(CompressionFormat::kNaiveQuantized) == "naive-quantized");
  CHECK(name_of(CompressionFormat::kFloatQuantized) == "float-quantized");
}
