#include "inspect/inspection.h"

#include <numeric>

#include "inspect/support/checkpoint_copy.h"
#include "support/catch.h"

namespace kvcal {
namespace {

using test::message_of;
using test::model_fixture;

std::string text_of(const InspectionResult& found, const std::string& key) {
  for (const Property& property : found.properties)
    if (property.key == key) return property.text;
  return "no such property";
}

const FormatSupport& format_of(const InspectionResult& found, const std::string& name) {
  for (const FormatSupport& format : found.consumers.formats)
    if (format.format == name) return format;
  throw Error("no format " + name);
}

}  // namespace

TEST_CASE("inspect: values of a plain checkpoint") {
  const InspectionResult found(model_fixture("llama").string());
  CHECK(found.config.model_type == "llama");
  CHECK(found.parameters == 50928);
  CHECK(found.bytes == 2 * found.parameters);
  CHECK(found.scale_format == "none");
  CHECK(found.manifest.is_null());
  CHECK(found.cache.values_per_token == 64);
  CHECK(found.cache.state_bytes_per_sequence == 0);
  CHECK(text_of(found, "norm") == "RMS, eps 1e-05");
  CHECK(text_of(found, "ropes") == "default, theta 10000, in all layers");
  REQUIRE(found.layers.size() == 2);
  CHECK(found.layers[1].dtype == DType::kF16);
  CHECK(found.layers[1].k_scales.empty());
  CHECK(found.layers[1].statistics == nullptr);
  CHECK(found.consumers.calibration_refusal.empty());
  CHECK(format_of(found, "compressed-tensors").strategies.size() == 2);
  CHECK(test::contains(format_of(found, "fp8").reason, "use compressed-tensors"));
}

TEST_CASE("inspect: every fixture can be told without running it") {
  for (const std::string& name : test::model_fixture_names()) {
    CAPTURE(name);
    const InspectionResult found(model_fixture(name).string());
    CHECK(found.layers.size() == found.config.attention_layers().size());
    uint64_t bytes = 0;
    int64_t count = 0;
    for (const report::TensorKind& group : group_sizes(found.tensors)) {
      bytes += group.bytes;
      count += group.count;
    }
    CHECK(bytes == found.bytes);
    CHECK(count == std::ssize(found.tensors));
    const Json json = inspection_json(found, true);
    CHECK(json.at("all_tensors").size() == found.tensors.size());
    CHECK(json.at("architecture").size() == found.properties.size());
  }
}

TEST_CASE("inspect: recurrent layers have states, and no row of their own") {
  const InspectionResult found(model_fixture("jamba").string());
  CHECK(found.cache.layers == std::ssize(found.layers));
  CHECK(found.cache.layers < found.config.num_hidden_layers);
  CHECK(found.cache.state_bytes_per_sequence > 0);
}

TEST_CASE("inspect: FP8 modules are counted by their scales and inputs") {
  const InspectionResult found(model_fixture("../fp8/mixed").string());
  REQUIRE(!found.quantization.linears.empty());
  const Property& counts = found.properties.back();
  CHECK(counts.key == "quantization");
  CHECK(counts.value.at("modules") == found.quantization.linears.size());
  CHECK(found.consumers.calibration_refusal.empty());  // its form is one that is read
}

TEST_CASE("inspect: a manifest beside the checkpoint gives the layers' statistics") {
  const test::CheckpointCopy copy("llama");
  copy.write_manifest(test::sample_manifest());
  const InspectionResult found(copy.path());
  CHECK(found.scale_format == "none");
  REQUIRE(found.layers[0].statistics != nullptr);
  CHECK(found.layers[0].k_scales.empty());  // those of the manifest are another output's
  const Json row = inspection_json(found, false).at("layers").at(0);
  CHECK(row.at("k_amax") == 4.0);
  CHECK(row.at("k_saturated") == 0.25);
  CHECK(!row.contains("k_scale"));
}

TEST_CASE("inspect: scales in another folder come from its manifest") {
  const test::CheckpointCopy scales("llama");
  scales.write_manifest(test::sample_manifest());
  const InspectionResult found(model_fixture("llama").string(), scales.path());
  CHECK(found.scale_format == "in " + scales.path());
  REQUIRE(found.layers[0].v_scales.size() == 2);
  CHECK(found.layers[0].v_scales[1].value == 0.125f);
}

TEST_CASE("inspect: a folder that is no checkpoint is an Error with its place") {
  const test::CheckpointCopy copy("llama");
  test::write_file(fs::path(copy.path()) / "config.json", R"({"model_type": "zamba2"})");
  const std::string message = message_of([&] { InspectionResult(copy.path()); });
  CHECK(message.starts_with(copy.path() + "/config.json: "));
  CHECK(message.find("config.json") == message.rfind("config.json"));
  CHECK(test::contains(message, "zamba2"));
}

}  // namespace kvcal
