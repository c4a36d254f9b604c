#include <algorithm>

#include "convert/output_model.h"
#include "convert/support/convert_case.h"
#include "stored/weights.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

const fs::path kAttention = test::tests_folder() / "fixtures" / "fp8" / "attention";

}  // namespace

TEST_CASE("queries: their scales stay where compressed-tensors stays") {
  const ScratchFolder scratch;
  const Converted converted = convert(
      {.checkpoint = kAttention, .formats = {"compressed-tensors"}, .target = scratch / "out"});
  CHECK(converted.notes.empty());
  const ModelDir before(kAttention), after(scratch / "out");
  CHECK(after.tensor_names() == before.tensor_names());
  for (const std::string& name : before.tensor_names()) {
    INFO(name);
    // llm-compressor stores scales in the dtype of the model; ours are float32.
    if (name.ends_with("_scale"))
      CHECK(values_of(after, name) == values_of(before, name));
    else
      CHECK(std::ranges::equal(after.tensor(name).bytes, before.tensor(name).bytes));
    CHECK(after.tensor(name).shape == before.tensor(name).shape);
  }
  CHECK(after.config().at("quantization_config").at("config_groups") ==
        before.config().at("quantization_config").at("config_groups"));
  // From there on byte for byte.
  convert({.checkpoint = scratch / "out",
           .formats = {"compressed-tensors"},
           .target = scratch / "again"});
  CHECK(difference(outputs_of(scratch / "again"), outputs_of(scratch / "out")) == "");
}

TEST_CASE("queries: other forms have no place for their scales, which is said") {
  for (const char* format : {"modelopt", "quark"}) {
    const ScratchFolder scratch;
    const Converted converted =
        convert({.checkpoint = kAttention, .formats = {format}, .target = scratch / "out"});
    CHECK(converted.notes == std::vector<std::string>{"scales of queries are not written"});
    const ModelDir output(scratch / "out");
    for (const std::string& name : output.tensor_names()) {
      CHECK_FALSE(name.ends_with("q_scale"));
      CHECK_FALSE(name.ends_with("q_zero_point"));
    }
  }
}

TEST_CASE("queries: without their scales nothing in config.json asks for them") {
  const ScratchFolder scratch;
  const Converted converted =
      convert({.checkpoint = kAttention, .formats = {"tgi"}, .target = scratch / "out"});
  CHECK(std::ranges::find(converted.notes, "scales of queries are not written") !=
        converted.notes.end());
  // The group of attention was all that was quantized.
  CHECK_FALSE(ModelDir(scratch / "out").config().contains("quantization_config"));
  const Converted replaced =
      convert({.checkpoint = kAttention,
               .formats = {"compressed-tensors"},
               .target = scratch / "replaced",
               .options = {.scales = scratch / "out", .strategy = {}, .dialect = {}}});
  CHECK(std::ranges::find(replaced.notes, "scales of queries are not written") !=
        replaced.notes.end());
  CHECK(ModelDir(scratch / "replaced")
            .config()
            .at("quantization_config")
            .at("config_groups")
            .empty());
}

TEST_CASE("queries: a checkpoint that is calibrated anew asks for none") {
  const ModelDir source(kAttention);
  SilentDiagnostics silent;
  const auto output =
      output_model(source, read_model_config(source), {"compressed-tensors"}, silent);
  REQUIRE(output);
  for (const std::string& name : output->model.tensor_names()) {
    INFO(name);
    CHECK_FALSE(name.ends_with("q_scale"));
  }
  // The group of attention was all that was quantized.
  CHECK_FALSE(output->kept);
}

TEST_CASE("queries: have the cache's strategy, which cannot be changed for K and V alone") {
  for (const Strategy strategy : {Strategy::kTensor, Strategy::kAttnHead})
    CHECK(refusal_of({.checkpoint = kAttention,
                      .formats = {"compressed-tensors"},
                      .options = {.scales = {}, .strategy = strategy, .dialect = {}}}) ==
          kAttention.string() +
              ": quantizes queries too, whose scales have the cache's strategy; --strategy is not "
              "for it");
}
