#include "inspect/inspection.h"

#include "inspect/support/checkpoint_copy.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;

TEST_CASE("inspection text: a plain checkpoint") {
  const std::string path = test::model_fixture("llama").string();
  const InspectionResult found(path);
  const std::string text = inspection_text(found, false, true);
  CHECK(text.starts_with(path + ": llama, 50928 parameters, 101.9 kB, KV scales: none\n"));
  CHECK(contains(text, "\narchitecture\n"));
  CHECK(contains(text, "\nKV cache of one token\n  16 bits  128 B\n  FP8      64 B\n"));
  CHECK(contains(text, "\nsupported by\n  calibration "));
  CHECK_FALSE(contains(text, "k_scale"));  // no layer has one, and no row says so
  CHECK_FALSE(contains(text, "over the layers"));
  const std::string answers = inspection_text(found, false, false);
  CHECK(contains(answers, "\nKV cache     128 B a token in 16 bits, 64 B in FP8\n"));
  CHECK(contains(answers, "\ncalibration  yes: kvcal try tells what an FP8 cache costs\n"));
  CHECK(contains(answers, "\ncould serve  vLLM "));
  CHECK(std::ranges::count(answers, '\n') == 5);
}

TEST_CASE("inspection text: amax of the manifest, or else scales, as a line over the layers") {
  InspectionResult found(test::model_fixture("llama").string());
  found.layers[0].k_scales = {Scale{0.25f}};
  found.layers[1].k_scales = {Scale{0.5f}, Scale{1.0f}};
  const Json seen[] = {{{"v_amax", 2.0}, {"v_saturated", 0.001}}, {{"v_amax", 16.0}}};
  for (size_t layer = 0; layer < 2; ++layer) found.layers[layer].statistics = &seen[layer];
  found.layers[0].q_scales = {Scale{0.125f}};
  const std::string text = inspection_text(found, false, true);
  CHECK(contains(text,
                 "\nover the layers, logarithmic\n"
                 "  k_scale  .@  0.25 to 1\n"
                 "  v_amax   .@  2 to 16\n"));
  CHECK(contains(inspection_text(found, true, false), "  v_amax   ▁█  2 to 16\n"));
  CHECK(contains(text, "  k_scale  v_scale  q_scale  k_amax  v_amax"));
  CHECK(contains(text, "\nlargest K, V  layers 1 (K 1, V 16), 0 (K 0.25, V 2)\n"));
  CHECK(contains(text, "     0.25        -    0.125       -       2 "));
  CHECK(contains(text, "  2 heads        -        -       -      16 "));
}

TEST_CASE("inspection text: every tensor has its role, dtype and shape") {
  const InspectionResult found(test::model_fixture("llama").string());
  const std::string text = tensors_text(found.tensors);
  CHECK(text.starts_with("\nall tensors\n"));
  CHECK(std::ranges::count(text, '\n') == std::ssize(found.tensors) + 2);
}
