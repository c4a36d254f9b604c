#include "sweep/schedule.h"

#include "support/catch.h"
#include "support/scratch_folder.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::message_of;
using kvcal::test::PlannedSweep;
using Kind = SweepTask::Kind;

namespace {

/// A plan with every kind of part, whose fingerprints are given by hand.
PlannedSweep fingerprinted() {
  PlannedSweep all(
      "{models: second, recipes: max, kv_forward: exact, num_samples: [8, 16], "
      "shuffle_seeds: [null, 7]}");
  size_t number = 0;
  for (Observation& one : all.plan.observations) one.fingerprint = "o" + std::to_string(number++);
  for (PlannedCalibration& one : all.plan.calibrations)
    one.fingerprint = "c" + std::to_string(number++);
  for (Cell& one : all.plan.cells) {
    one.fingerprint = "e" + std::to_string(number++);
    one.answer_fingerprint = "a" + std::to_string(number++);
  }
  return all;
}

}  // namespace

TEST_CASE("sweep task: an argument names kind and parts, and is read back") {
  const PlannedSweep all = fingerprinted();
  for (const Kind kind : kTaskKinds)
    for (size_t part = 0; part < num_parts(kind, all.plan); ++part) {
      const SweepTask task{.kind = kind, .parts = {part}};
      const std::string text = argument_of(task, all.plan);
      CHECK(text == std::string(name_of(kind)) + ":" + fingerprint_of(kind, part, all.plan));
      CHECK(parse_task(text, all.plan).kind == kind);
      CHECK(parse_task(text, all.plan).parts == task.parts);
      CHECK(model_of(task, all.plan) == 1);
    }
  const SweepTask several{.kind = Kind::kEvaluate, .parts = {2, 0, 3}};
  CHECK(parse_task(argument_of(several, all.plan), all.plan).parts == several.parts);
}

TEST_CASE("sweep task: what names no task, or a part of another plan, is refused") {
  const PlannedSweep all = fingerprinted();
  for (const char* text : {"", "evaluate", "bake:e1"})
    CHECK(message_of([&] { parse_task(text, all.plan); }) ==
          "--task: found '" + std::string(text) +
              "', expected observe:, calibrate:, evaluate: or answer: and parts");
  for (const char* text : {"evaluate:", "evaluate:x", "evaluate:o0", "observe:o0,"})
    CHECK(message_of([&] { parse_task(text, all.plan); }) ==
          "the sweep's file, models or data sets changed while it runs; start it again");
}

TEST_CASE("sweep task: descriptions name model, recipe and samples") {
  const PlannedSweep all = fingerprinted();
  const auto text = [&](Kind kind, std::vector<size_t> parts) {
    return description_of({.kind = kind, .parts = std::move(parts)}, all.sweep, all.plan);
  };
  CHECK(text(Kind::kObserve, {0}) == "statistics of second, 8 samples");
  CHECK(text(Kind::kObserve, {1}) == "statistics of second, 8 samples of seed 7");
  CHECK(text(Kind::kCalibrate, {2}) == "scales of second by max, fp8_e4m3, exact, 16 samples");
  CHECK(text(Kind::kEvaluate, {0}) == "evaluate second/max/fp8_e4m3/exact/8");
  CHECK(text(Kind::kEvaluate, {1, 0}) ==
        "evaluate 2 cells, the first second/max/fp8_e4m3/exact/8/seed7");
  CHECK(text(Kind::kAnswer, {0}) == "questions for second/max/fp8_e4m3/exact/8");
}

TEST_CASE("statistics recipe: the value is what llm-compressor's YAML of it means") {
  const Recipe parsed = parse_recipe(
      "sweep_stage: {sweep_modifiers: {QuantizationModifier: {kv_cache_scheme: {num_bits: 8, "
      "type: float, strategy: tensor, observer: static_minmax}}}}");
  CHECK(to_yaml(statistics_recipe()) == to_yaml(parsed));
}
