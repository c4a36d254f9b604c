#include "convert/support/convert_case.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

constexpr const char* kKScale = "model.layers.1.self_attn.k_scale";

ConversionOptions for_dialect(fp8::Format dialect, const fs::path& scales = {}) {
  return {.scales = scales, .strategy = {}, .dialect = dialect};
}

/// A checkpoint of E4M3FN scales.
void write_source(const std::string& format, const std::string& strategy, const ScaleOf& scale_of,
                  const fs::path& folder) {
  const Calibrated run(model_fixture("llama"), recipe_text("", strategy), scale_of);
  write_calibrated(run.input(), format, folder);
}

/// Whose mantissa uses all bits.
float third(int64_t layer, char side, int64_t head) {
  return scales_apart(layer, side, head) / 3.0f;
}

float largest(int64_t, char, int64_t) {
  return 3.0e38f;
}

}  // namespace

TEST_CASE("dialect: fnuz doubles every scale, and fn gives the bytes back") {
  const ScratchFolder scratch;
  for (const char* strategy : {"tensor", "attn_head"}) {
    const fs::path fn = scratch / strategy / "fn", fnuz = scratch / strategy / "fnuz",
                   back = scratch / strategy / "back";
    write_source("compressed-tensors", strategy, third, fn);
    const Converted doubled = convert({.checkpoint = fn,
                                       .formats = {"compressed-tensors"},
                                       .target = fnuz,
                                       .options = for_dialect(fp8::Format::kE4m3Fnuz)});
    CHECK(tells(doubled.notes, "scales are doubled: a code of E4M3FNUZ stands for half the value"));
    CHECK(doubled.losses.at(0).k_octaves == 0.0);
    const ModelDir before(fn), after(fnuz);
    std::vector<float> expected = values_of(before, kKScale);
    for (float& value : expected) value *= 2.0f;
    CHECK(values_of(after, kKScale) == expected);
    CHECK(after.config().at("kv_cache_torch_dtype") == "float8_e4m3fnuz");
    const Json manifest = parse_json(read_text(fnuz / kManifestName));
    CHECK(manifest.at("conversion").at("kv_cache_dtype") == "float8_e4m3fnuz");
    const Converted halved = convert({.checkpoint = fnuz,
                                      .formats = {"compressed-tensors"},
                                      .target = back,
                                      .options = for_dialect(fp8::Format::kE4m3Fn)});
    CHECK(tells(halved.notes, "scales are halved"));
    CHECK(difference(outputs_of(back), outputs_of(fn)) == "");
  }
}

TEST_CASE("dialect: a source says its own, and keeps it where no other is asked for") {
  const ScratchFolder scratch;
  write_source("tgi", "tensor", one_scale_a_layer, scratch / "fn");
  const auto run = [&](const char* from, const char* format, const char* to,
                       std::optional<fp8::Format> dialect) {
    return convert({.checkpoint = scratch / from,
                    .formats = {format},
                    .target = scratch / to,
                    .options = {.scales = {}, .strategy = {}, .dialect = dialect}});
  };
  run("fn", "tgi", "fnuz", fp8::Format::kE4m3Fnuz);
  CHECK(ModelDir(scratch / "fnuz").config().at("kv_cache_torch_dtype") == "float8_e4m3fnuz");
  // To another format and back, as it is.
  CHECK_FALSE(tells(run("fnuz", "compressed-tensors", "other", {}).notes, "doubled"));
  run("other", "tgi", "again", {});
  CHECK(difference(outputs_of(scratch / "again"), outputs_of(scratch / "fnuz")) == "");
  // Asked for what it is, nothing is doubled twice.
  run("fnuz", "tgi", "same", fp8::Format::kE4m3Fnuz);
  CHECK(difference(outputs_of(scratch / "same"), outputs_of(scratch / "fnuz")) == "");
  run("same", "tgi", "back", fp8::Format::kE4m3Fn);
  CHECK(difference(outputs_of(scratch / "back"), outputs_of(scratch / "fn")) == "");
}

TEST_CASE("dialect: only compressed-tensors and tgi hold scales of fnuz") {
  const ScratchFolder scratch;
  write_source("compressed-tensors", "tensor", one_scale_a_layer, scratch / "16bit");
  const Calibrated run(model_fixture("llama"), recipe_text("scheme: FP8", "tensor"),
                       one_scale_a_layer);
  write_calibrated(run.input(), "fp8", scratch / "fp8");
  const auto refusal = [&](const char* source, const std::string& format) {
    return refusal_of({.checkpoint = scratch / source,
                       .formats = {format},
                       .options = for_dialect(fp8::Format::kE4m3Fnuz)});
  };
  const std::string stored =
      "'s form holds scales of E4M3FN, which engines double where codes are E4M3FNUZ; the "
      "calibration has another format (convert takes --fp8-dialect fn)";
  CHECK(refusal("16bit", "modelopt") == "ModelOpt" + stored);
  CHECK(refusal("16bit", "quark") == "Quark" + stored);
  CHECK(refusal("fp8", "fp8") == "fp8" + stored);
  CHECK(refusal("16bit", "scales-json") ==
        "kv_cache_scales.json holds scales of float8_e4m3fn or float8_e5m2, the calibration has "
        "those of float8_e4m3fnuz");
  CHECK(refusal("16bit", "compressed-tensors") == "no error");
  CHECK(refusal("16bit", "tgi") == "no error");
  CHECK(refusal("16bit", "compressed-tensors+tgi") == "no error");
  // Nor do they take a source that is fnuz without halving it.
  convert({.checkpoint = scratch / "16bit",
           .formats = {"tgi"},
           .target = scratch / "fnuz",
           .options = for_dialect(fp8::Format::kE4m3Fnuz)});
  CHECK(refusal_of({.checkpoint = scratch / "fnuz", .formats = {"modelopt"}}) ==
        "ModelOpt" + stored);
}

TEST_CASE("dialect: E5M2 has no other, and goes to no other format") {
  const ScratchFolder scratch;
  const fs::path file = scratch / "kv_cache_scales.json";
  write_scales_json(file, {{0.25f, 0.5f}}, "float8_e5m2");
  const auto refusal = [&](const std::string& format, std::optional<fp8::Format> dialect) {
    return refusal_of({.checkpoint = model_fixture("llama"),
                       .formats = {format},
                       .options = {.scales = file, .strategy = {}, .dialect = dialect}});
  };
  for (const fp8::Format dialect : {fp8::Format::kE4m3Fn, fp8::Format::kE4m3Fnuz})
    CHECK(refusal("scales-json", dialect) ==
          file.string() + ": scales of E5M2 have no other dialect, expected those of E4M3");
  CHECK(refusal("scales-json", {}) == "no error");
  CHECK(refusal("compressed-tensors", {}) ==
        "a compressed-tensors checkpoint holds scales of E4M3, the calibration is of E5M2");
  CHECK(refusal("tgi", {}) ==
        "TGI reads scales of E4M3FN and E4M3FNUZ, the calibration is of E5M2");
  for (const char* format : {"modelopt", "quark"})
    CHECK(contains(refusal(format, {}), "the calibration has another format"));
}

TEST_CASE("dialect: a scale that leaves the normal numbers is refused") {
  const ScratchFolder scratch;
  CHECK(contains(
      message_of([&] { write_source("compressed-tensors", "tensor", largest, scratch / "large"); }),
      "scale 3e+38, expected a scale from"));
  const auto smallest = [](int64_t, char, int64_t) { return 1.5e-38f; };
  write_source("compressed-tensors", "tensor", smallest, scratch / "small");
  change_config(scratch / "small",
                [](Json& config) { config["kv_cache_torch_dtype"] = "float8_e4m3fnuz"; });
  CHECK(refusal_of({.checkpoint = scratch / "small",
                    .formats = {"compressed-tensors"},
                    .options = for_dialect(fp8::Format::kE4m3Fn)}) ==
        (scratch / "small").string() + ": scale 1.5e-38 times 0.5 is not a normal number");
}
