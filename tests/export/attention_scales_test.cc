#include "export/layer_scales.h"

#include "export/quantized_case.h"
#include "support/catch.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

std::vector<float> tied(std::vector<Scale> scales, int64_t ranks) {
  std::vector<float> values;
  for (const Scale scale : tied_over_ranks(scales, ranks)) values.push_back(scale.value);
  return values;
}

const Tensor& named(const std::vector<Tensor>& tensors, const std::string& name) {
  const auto it = std::ranges::find(tensors, name, &Tensor::name);
  REQUIRE(it != tensors.end());
  return *it;
}

}  // namespace

TEST_CASE("tied_over_ranks: the heads of a rank share their largest scale") {
  const std::vector<Scale> scales{{1}, {4}, {3}, {2}, {8}, {5}};
  CHECK((tied(scales, 1) == std::vector<float>{1, 4, 3, 2, 8, 5}));
  CHECK((tied(scales, 2) == std::vector<float>{4, 4, 4, 8, 8, 8}));
  CHECK((tied(scales, 3) == std::vector<float>{4, 4, 3, 3, 8, 8}));
  for (const int64_t ranks : {6, 12, 18})
    CHECK((tied(scales, ranks) == std::vector<float>{1, 4, 3, 2, 8, 5}));
  CHECK((tied({{7}}, 4) == std::vector<float>{7}));
  CHECK(message_of([&] { tied_over_ranks(scales, 4); }) ==
        "6 heads cannot be divided over 4 ranks");
}

TEST_CASE("attention groups: Q has scales a head of the model, and all three have zero points") {
  const QuantizedParts parts("attention");
  ExportInput input = parts.input();
  input.tp_size = 2;
  const std::vector<Tensor> tensors = attention_tensors(input);
  CHECK(tensors.size() == 12);
  CHECK(attention_tensor_names(parts.calibration).size() == 12);
  const Tensor& q = named(tensors, "model.layers.1.self_attn.q_scale");
  CHECK(q.shape == Shape{6, 1, 1});
  const auto values = q.view().as<float>();
  // Six heads 0.02 … 0.07, three a rank.
  for (size_t i = 0; i < 6; ++i)
    CHECK(values[i] == parts.calibration.layers[1].q->scales[i < 3 ? 2 : 5].value);
  for (const char* letter : {"q", "k", "v"}) {
    const Tensor& zero =
        named(tensors, std::string("model.layers.0.self_attn.") + letter + "_zero_point");
    CHECK(zero.dtype == DType::kF8E4M3);
    CHECK(std::ranges::all_of(zero.bytes, [](std::byte byte) { return byte == std::byte{0}; }));
    CHECK(zero.bytes.size() == (*letter == 'q' ? 6u : 2u));
  }
  input.tp_size = 4;
  CHECK(contains(refusal("compressed-tensors", input), "6 heads cannot be divided over 4 ranks"));
}

TEST_CASE("attention groups: a layer without a scale of Q is refused") {
  QuantizedParts parts("attention");
  parts.calibration.layers[1].q->scales[3] = {std::numeric_limits<float>::quiet_NaN()};
  CHECK(contains(refusal("compressed-tensors", parts.input()),
                 "model.layers.1.self_attn: Q: head 3: scale nan"));
  parts.calibration.layers[1].q.reset();
  CHECK(refusal("compressed-tensors", parts.input()) ==
        "model.layers.1.self_attn: Q: has no scale");
}

TEST_CASE("attention groups: formats without scales of queries say so") {
  QuantizedParts parts("attention");
  parts.plan().linears.clear();
  parts.plan().groups.clear();
  const auto last_note = [&](const std::string& format) {
    return kWriters.at(format).make()->notes(parts.input()).back();
  };
  CHECK(contains(last_note("modelopt"), "queries"));
  CHECK(contains(last_note("tgi"), "queries"));
  CHECK(contains(last_note("scales-json"), "queries"));
}

TEST_CASE("ignored layers: vLLM's arguments lie beside the checkpoint") {
  const Calibration calibration = calibration_of(export_case("single_tensor"));
  CHECK(!vllm_arguments(calibration));
  Calibration two = calibration;
  for (AttentionCalibration& layer : two.layers) layer.ignored = true;
  CHECK(contains(vllm_arguments(two).value(), "kv-cache-dtype-skip-layers: [0, 1]\n"));
}
