#include "run/loaded_model.h"

#include "run/support/text_checkpoint.h"
#include "support/catch.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::KeptLines;
using kvcal::test::message_of;
using kvcal::test::TextCheckpoint;

namespace {

CacheType dtype_of(const LoadedModel& model, const CacheOptions& cache) {
  SilentDiagnostics silent;
  return cache_type_of(cache, model, silent);
}

}  // namespace

TEST_CASE("loaded model: without scales the cache is the model's dtype") {
  const TextCheckpoint files;
  KeptLines lines;
  const LoadedModel model(files.path(), test::reference_device(), true, lines);
  CHECK(model.tokenizer != nullptr);
  CHECK(dtype_of(model, {}) == KvDType::kFloat16);
  CHECK(dtype_of(model, {.kv_cache_dtype = "float32"}) == KvDType::kFloat32);
  CHECK(dtype_of(model, {.unit_scales = true}) == KvDType::kFp8E4m3);
  CHECK(contains(message_of([&] { dtype_of(model, {.kv_cache_dtype = "fp9"}); }),
                 "--kv-cache-dtype: "));
  CHECK(lines.warnings.empty());
}

TEST_CASE("loaded model: scales are for FP8 alone, and must be somewhere") {
  const TextCheckpoint files;
  SilentDiagnostics silent;
  const LoadedModel model(files.path(), test::reference_device(), false, silent);
  CHECK(scales_of({}, model, KvDType::kFloat16, silent).empty());
  const auto unit = scales_of({.unit_scales = true}, model, KvDType::kFp8E4m3, silent);
  REQUIRE(unit.size() == 2);
  CHECK(unit[1].k.at(0).value == 1.0f);
  CHECK(contains(message_of([&] { scales_of({}, model, KvDType::kFp8E4m3, silent); }),
                 "has no KV scales for a fp8_e4m3 cache; calibrate it"));
}

TEST_CASE("loaded model: a config that asks for FP8 without scales leaves the choice to the user") {
  const TextCheckpoint files;
  const fs::path config = files.folder / "model" / "config.json";
  Json json = parse_json(read_text(config));
  json["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"kv_cache_scheme",
       {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}}},
      {"config_groups", Json::object()}};
  test::write_file(config, dump_json(json));
  SilentDiagnostics silent;
  const LoadedModel model(files.path(), test::reference_device(), false, silent);
  CHECK(contains(message_of([&] { dtype_of(model, {}); }), "choose the cache with"));
  CHECK(dtype_of(model, {.unit_scales = true}) == KvDType::kFp8E4m3);
}

TEST_CASE("loaded model: unit scales and other scales exclude each other") {
  CHECK(message_of([] { check({.scales = "x", .unit_scales = true}); }) ==
        "--unit-scales and --scales exclude each other");
}
