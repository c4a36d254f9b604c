#include "sweep/schedule.h"

#include "support/catch.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::PlannedSweep;
using Kind = SweepTask::Kind;

namespace {

/// "o0 c1<0 e0,1<1": kind, parts, and which tasks it needs.
std::string text_of(const std::vector<SweepTask>& tasks) {
  std::string text;
  for (const SweepTask& task : tasks) {
    text += (text.empty() ? "" : " ") + std::string(1, "ocea"[static_cast<size_t>(task.kind)]);
    for (size_t i = 0; i < task.parts.size(); ++i)
      text += (i ? "," : "") + std::to_string(task.parts[i]);
    for (size_t i = 0; i < task.needs.size(); ++i)
      text += (i ? "," : "<") + std::to_string(task.needs[i]);
  }
  return text;
}

}  // namespace

TEST_CASE("schedule: what is needed comes before, shared work once, groups as soon as they can") {
  const PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_cache_dtypes: [fp8_e4m3, fp8_e5m2], "
      "kv_forward: [exact, quantized], num_samples: 8}");
  SweepProgress done = nothing_done(all.sweep, all.plan);
  CHECK(text_of(schedule(all.plan, done, 8)) ==
        "o0 c0<0 c1 c2<0 c3 c4<0 c5 c6<0 c7 e0,1,2,3,4,5,6,7<1,2,3,4,5,6,7,8");
  CHECK(text_of(schedule(all.plan, done, 4)) ==
        "o0 c0<0 c1 c2<0 c3 e0,1,2,3<1,2,3,4 c4<0 c5 c6<0 c7 e4,5,6,7<6,7,8,9");
  CHECK(text_of(schedule(all.plan, done, 5)) ==
        "o0 c0<0 c1 c2<0 c3 c4<0 e0,1,2,3,4<1,2,3,4,5 c5 c6<0 c7 e5,6,7<7,8,9");
}

TEST_CASE("schedule: what is there is not done again, nor what only it needed") {
  const PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_forward: exact, "
      "num_samples: [8, 16]}");
  SweepProgress done = nothing_done(all.sweep, all.plan);
  done.cells[0] = true;
  CHECK(text_of(schedule(all.plan, done, 8)) == "o1 c1<0 o0 c2<2 c3<0 e1,2,3<1,3,4");
  done.calibrations[1] = true;
  done.observations[0] = true;
  CHECK(text_of(schedule(all.plan, done, 8)) == "c2 o1 c3<1 e1,2,3<0,2");
  done.cells = {true, true, true, true};
  CHECK(schedule(all.plan, done, 8).empty());
}

TEST_CASE("schedule: only cells that run the same weights are together") {
  const PlannedSweep all(
      "{recipes: [dynamic, null], kv_cache_dtypes: [auto, fp8_e4m3], scales: "
      "unit}");
  // m1: dynamic in float16 and E4M3, then both without; the same of the second model.
  REQUIRE(all.plan.cells.size() == 8);
  const auto tasks = schedule(all.plan, nothing_done(all.sweep, all.plan), 8);
  CHECK(text_of(tasks) == "e2,3 c0 e0,1<1 e6,7 c1 e4,5<4");
}

TEST_CASE("schedule: what cells answer comes last, one cell at a time") {
  PlannedSweep all(
      "{models: m1, recipes: max, kv_cache_dtypes: [auto, fp8_e4m3], "
      "num_samples: 8}");
  all.sweep.gsm8k.emplace();
  SweepProgress done = nothing_done(all.sweep, all.plan);
  CHECK(text_of(schedule(all.plan, done, 8)) == "c0 e0,1<0 a0 a1<0");
  done.cells = {true, true};
  done.answers[0] = true;
  CHECK(text_of(schedule(all.plan, done, 8)) == "c0 a1<0");
  done.calibrations[0] = true;
  CHECK(text_of(schedule(all.plan, done, 8)) == "a1");
}
