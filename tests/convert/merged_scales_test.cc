#include <cmath>

#include "convert/conversion.h"
#include "convert/support/convert_case.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const fs::path kRankFiles = test::tests_folder() / "fixtures" / "rank_scales";

/// compressed-tensors with scales_apart: with h the head and s the layer's own number, K has
/// s * 2^(2h - 1) and V s * 2^(-2h - 3).
void write_source(const std::string& model, const std::string& strategy, const fs::path& folder) {
  const Calibrated run(model_fixture(model), recipe_text("", strategy), scales_apart);
  write_calibrated(run.input(), "compressed-tensors", folder);
}

/// Every layer lost exactly that.
void check_lost(const std::vector<LayerLoss>& losses, double k_octaves, double v_octaves) {
  CHECK(losses.size() == 2);
  for (const LayerLoss& loss : losses) {
    INFO("layer " << loss.layer);
    CHECK(loss.k_octaves == k_octaves);
    CHECK(loss.v_octaves == v_octaves);
  }
}

std::vector<LayerLoss> losses_to(const fs::path& source, const std::string& format,
                                 const ConversionOptions& options = {}, int64_t tp_size = 1) {
  const ScratchFolder scratch;
  return convert({.checkpoint = source,
                  .formats = {format},
                  .target = scratch / "out",
                  .options = options,
                  .tp_size = tp_size})
      .losses;
}

}  // namespace

TEST_CASE("losses: K and V in one scale lose the octaves between them") {
  const ScratchFolder source;
  write_source("llama", "tensor", source.path());
  for (const char* format : {"tgi", "scales-json"}) {
    const auto losses = losses_to(source.path(), format);
    check_lost(losses, 0, 2);
    CHECK(losses[1].layer == 1);
    CHECK(losses[1].k_scale == scales_apart(1, 'k', 0));
    CHECK(losses[1].v_scale == scales_apart(1, 'v', 0));
    CHECK(losses[1].k_written == losses[1].k_scale);
    CHECK(losses[1].v_written == losses[1].k_scale);
  }
  for (const char* format : {"compressed-tensors", "modelopt", "quark"})
    check_lost(losses_to(source.path(), format), 0, 0);
}

TEST_CASE("losses: of heads that are merged, the one that loses most counts") {
  const ScratchFolder source;
  write_source("llama", "attn_head", source.path());
  check_lost(losses_to(source.path(), "compressed-tensors"), 0, 0);
  check_lost(losses_to(source.path(), "modelopt"), 2, 2);
  check_lost(losses_to(source.path(), "quark"), 2, 2);
  // K's head 1 has 64 times the scale of V's head 1.
  check_lost(losses_to(source.path(), "tgi"), 2, 6);
  check_lost(losses_to(source.path(), "scales-json"), 2, 6);
  ConversionOptions merged;
  merged.strategy = Strategy::kTensor;
  check_lost(losses_to(source.path(), "compressed-tensors", merged), 2, 2);
}

TEST_CASE("losses: heads that one rank holds share a scale") {
  const ScratchFolder source;
  write_source("phi", "attn_head", source.path());  // 6 KV heads
  check_lost(losses_to(source.path(), "compressed-tensors", {}, 6), 0, 0);
  check_lost(losses_to(source.path(), "compressed-tensors", {}, 3), 2, 2);
  check_lost(losses_to(source.path(), "compressed-tensors", {}, 2), 4, 4);
  check_lost(losses_to(source.path(), "compressed-tensors", {}, 12), 0, 0);
  // Rank 0 has heads 0 to 2: K up to 2^3, V from 2^-3 down to 2^-7; rank 1 K up to 2^9, V to 2^-13.
  check_lost(losses_to(source.path(), "scales-json", {}, 2), 4, 22);
  // A head a rank: V is merged with its own head's K alone.
  check_lost(losses_to(source.path(), "scales-json", {}, 6), 0, 22);
  CHECK(
      refusal_of({.checkpoint = source.path(), .formats = {"compressed-tensors"}, .tp_size = 4}) ==
      "model.layers.0.self_attn: 6 heads cannot be divided over 4 ranks");
}

TEST_CASE("losses: ranks of kv_cache_scales.json") {
  const ScratchFolder scratch;
  const fs::path file = scratch / "ranks" / "kv_cache_scales.json";
  write_scales_json(file, {{0.25f, 1.0f}, {0.5f, 8.0f}});
  ConversionOptions ranks{.scales = file, .strategy = {}, .dialect = {}};
  for (const char* format : {"compressed-tensors", "modelopt", "quark", "tgi", "scales-json"}) {
    INFO(format);
    const auto losses = losses_to(model_fixture("llama"), format, ranks);
    REQUIRE(losses.size() == 2);
    CHECK(losses[0].k_octaves == 1);
    CHECK(losses[0].v_octaves == 1);
    CHECK(losses[1].k_octaves == 3);
    CHECK(losses[1].k_written == 8.0f);
  }
  // The 2 heads of a layer lie on a rank each.
  ranks.strategy = Strategy::kAttnHead;
  check_lost(losses_to(model_fixture("llama"), "compressed-tensors", ranks), 0, 0);
  // From file to file ranks stay apart without being asked for.
  ranks.strategy.reset();
  convert({.checkpoint = model_fixture("llama"),
           .formats = {"scales-json"},
           .target = scratch / "again",
           .options = ranks,
           .tp_size = 2});
  CHECK(parse_json(read_text(scratch / "again" / "kv_cache_scales.json")) ==
        parse_json(read_text(file)));
}

TEST_CASE("losses: --strategy attn_head gives each head the value of its rank") {
  const ScratchFolder scratch;
  const fs::path file = scratch / "kv_cache_scales.json";
  write_scales_json(file, {{0.25f, 1.0f}, {0.5f, 8.0f}, {0.125f, 2.0f}}, "float8_e4m3fn", "phi");
  convert({.checkpoint = model_fixture("phi"),
           .formats = {"compressed-tensors"},
           .target = scratch / "out",
           .options = {.scales = file, .strategy = Strategy::kAttnHead, .dialect = {}}});
  const ModelDir output(scratch / "out");
  CHECK(values_of(output, "model.layers.0.self_attn.k_scale") ==
        std::vector<float>{0.25f, 0.25f, 0.5f, 0.5f, 0.125f, 0.125f});
  CHECK(values_of(output, "model.layers.1.self_attn.v_scale") ==
        std::vector<float>{1.0f, 1.0f, 8.0f, 8.0f, 2.0f, 2.0f});
  CHECK(output.tensor("model.layers.0.self_attn.k_scale").shape == Shape{6, 1, 1});
}

TEST_CASE("losses: rank files") {
  const auto expected = parse_json(read_text(kRankFiles / "expected.json")).at("tp2").at("ranks");
  const auto losses = losses_to(model_fixture("llama"), "compressed-tensors",
                                {.scales = kRankFiles / "tp2", .strategy = {}, .dialect = {}});
  REQUIRE(losses.size() == 2);
  for (size_t layer = 0; layer < 2; ++layer) {
    const float a = expected[0][layer], b = expected[1][layer];
    CHECK(losses[layer].k_scale == std::max(a, b));
    CHECK(losses[layer].v_written == std::max(a, b));
    const double octaves = std::fabs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
    CHECK(losses[layer].k_octaves == Approx(octaves));
    CHECK(losses[layer].v_octaves == Approx(octaves));
  }
}

TEST_CASE("losses: layers without scales are not told") {
  const ScratchFolder source;
  const Calibrated run(model_fixture("llama_tied_bf16"),
                       recipe_text("", "tensor", "model.layers.1.self_attn"), scales_apart);
  write_calibrated(run.input(), "compressed-tensors", source.path());
  const auto losses = losses_to(source.path(), "tgi");
  REQUIRE(losses.size() == 2);
  CHECK(losses[0].layer == 0);
  CHECK(losses[1].layer == 2);
  CHECK(losses[1].v_octaves == 2);
}

TEST_CASE("losses: the manifest has the layers that lost, and the scales as they are written") {
  const ScratchFolder scratch;
  write_source("llama", "attn_head", scratch / "source");
  ConvertRun run{.checkpoint = scratch / "source",
                 .formats = {"compressed-tensors", "tgi"},
                 .target = scratch / "out"};
  convert(run);
  const Json manifest = parse_json(read_text(scratch / "out" / kManifestName));
  const Json& conversion = manifest.at("conversion");
  CHECK(conversion.at("form") == "compressed-tensors");
  CHECK(conversion.at("scales") == run.checkpoint.string());
  CHECK(conversion.at("kv_cache_dtype") == "float8_e4m3fn");
  CHECK(conversion.at("lost").at("compressed-tensors") == Json::array());
  const Json lost = {{{"layer", 0}, {"k_octaves", 2.0}, {"v_octaves", 6.0}},
                     {{"layer", 1}, {"k_octaves", 2.0}, {"v_octaves", 6.0}}};
  CHECK(conversion.at("lost").at("tgi") == lost);
  // What the calibration knew is still there.
  CHECK(manifest.at("kvcal_version") == "0.0.2");
  const Json& layer = manifest.at("layers").at(1);
  CHECK(layer.at("module") == "model.layers.1.self_attn");
  CHECK(layer.contains("k_amax"));
  CHECK(layer.at("k_scale") == Json({scales_apart(1, 'k', 0), scales_apart(1, 'k', 1)}));
  CHECK(manifest.at("recipe").at("kv_cache_scheme").at("observer") == "static_minmax");
}
