// inspect, convert and verify are asked about the same checkpoints, and may not differ.
#include <algorithm>

#include "convert/conversion.h"
#include "engines/engine_rules.h"
#include "export/writer.h"
#include "inspect/inspection.h"
#include "inspect/verification.h"
#include "stored/kv_scales.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

namespace kvcal {
namespace {

/// A fixture with scales in every layer, in one of the formats.
void write_with_scales(const std::string& fixture, const std::string& format,
                       const fs::path& folder) {
  const fs::path source = test::tests_folder() / "fixtures/models" / fixture;
  const ModelConfig config = read_model_config(ModelDir(source));
  Json layers = Json::object();
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    layers[std::to_string(layer)] = 0.125;
  const test::ScratchFolder scales;
  test::write_file(
      scales / "kv_cache_scales.json",
      dump_json(
          Json{{"model_type", config.model_type},
               {"kv_cache", {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", layers}}}}}}));
  SilentDiagnostics silent;
  const Conversion conversion(
      source, {format}, {.scales = scales / "kv_cache_scales.json", .strategy = {}, .dialect = {}},
      silent);
  const auto writer = kWriters.at(format).make();
  writer->check(conversion.input());
  writer->write(conversion.input(), folder);
}

/// The message of the refusal of a conversion, or "no error".
std::string refusal(const fs::path& checkpoint, const std::string& format, Strategy strategy) {
  return test::message_of([&] {
    SilentDiagnostics silent;
    const Conversion conversion(checkpoint, {format},
                                {.scales = {}, .strategy = strategy, .dialect = {}}, silent);
    const ExportInput input = conversion.input();
    kWriters.at(format).make()->check(input);
  });
}

}  // namespace

TEST_CASE("inspect: of a checkpoint with scales it says what convert and verify say") {
  for (const char* fixture : {"llama", "qwen3", "mixtral", "deepseek_v2"})
    for (const char* format : {"compressed-tensors", "modelopt", "quark", "tgi"}) {
      INFO(fixture << ", " << format);
      const test::ScratchFolder folder;
      write_with_scales(fixture, format, folder.path());
      const InspectionResult found(folder.path().string());
      for (const FormatSupport& support : found.consumers.formats) {
        INFO(support.format);
        for (const Strategy strategy : {Strategy::kTensor, Strategy::kAttnHead}) {
          const std::string no = refusal(folder.path(), support.format, strategy);
          const bool is_listed =
              std::ranges::find(support.strategies, name_of(strategy)) != support.strategies.end();
          CHECK(is_listed == (no == "no error"));
        }
      }
      const auto reports = verify(folder.path(), checkpoint_engines(), {});
      REQUIRE(found.consumers.served.size() == reports.size());
      for (size_t i = 0; i < reports.size(); ++i) {
        const ServedEngine& served = found.consumers.served[i];
        INFO(served.name);
        CHECK(served.name == reports[i].engine);
        CHECK((served.outcome == LoadOutcome::kNotKnown) == !reports[i].is_known);
        CHECK((served.outcome == LoadOutcome::kRefused) ==
              (reports[i].is_known && !reports[i].loads));
        // Told to use FP8, an engine may take scales that it passes over by itself.
        const bool is_used = reports[i].loads && !loses_scales(reports[i]) &&
                             holds_scales(reports[i]) && reports[i].kv_cache_dtype != "auto";
        if (reports[i].is_known && is_used) CHECK(served.outcome == LoadOutcome::kLoaded);
      }
    }
}

}  // namespace kvcal
