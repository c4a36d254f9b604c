#include "sweep/plan.h"

#include <set>

#include "support/catch.h"
#include "support/scratch_folder.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::PlannedSweep;
using Strings = std::vector<std::string>;

TEST_CASE("plan: a grid is every combination, in the order of its lists") {
  const PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_forward: [quantized, exact], num_samples: "
      "[8, 16], shuffle_seeds: [null, 3]}");
  CHECK(all.plan.num_combinations == 16);
  CHECK(all.plan.num_merged() == 0);
  const Strings ids = all.ids();
  REQUIRE(ids.size() == 16);
  CHECK(ids[0] == "m1/max/fp8_e4m3/quantized/8");
  CHECK(ids[1] == "m1/max/fp8_e4m3/quantized/8/seed3");
  CHECK(ids[2] == "m1/max/fp8_e4m3/quantized/16");
  CHECK(ids[4] == "m1/max/fp8_e4m3/exact/8");
  CHECK(ids[8] == "m1/mse/fp8_e4m3/quantized/8");
  CHECK(std::set(ids.begin(), ids.end()).size() == 16);
}

TEST_CASE("plan: what changes nothing makes no second cell") {
  // A 16-bit cache knows no scales; scales of 1.0 no recipe, forward, samples or seed.
  const PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_cache_dtypes: [auto, float16, fp8_e4m3], scales: "
      "[calibrated, unit], kv_forward: [quantized, exact], num_samples: [8, 16]}");
  CHECK(all.plan.num_combinations == 2 * 3 * 2 * 2 * 2);
  CHECK(all.ids() == Strings{"m1/float16", "m1/max/fp8_e4m3/quantized/8",
                             "m1/max/fp8_e4m3/quantized/16", "m1/max/fp8_e4m3/exact/8",
                             "m1/max/fp8_e4m3/exact/16", "m1/fp8_e4m3/unit",
                             "m1/mse/fp8_e4m3/quantized/8", "m1/mse/fp8_e4m3/quantized/16",
                             "m1/mse/fp8_e4m3/exact/8", "m1/mse/fp8_e4m3/exact/16"});
  CHECK(all.plan.num_merged() == 48 - 10);
  // "auto" is each model's own.
  const PlannedSweep other("{models: second, kv_cache_dtypes: [auto, float16, bfloat16]}");
  CHECK(other.ids().front() == "second/bfloat16");
  CHECK(std::ranges::count(other.ids(), "second/bfloat16") == 1);
}

TEST_CASE("plan: FP8 weights are another cell with each cache") {
  const PlannedSweep all(
      "{models: m1, recipes: [dynamic, fixed, null], kv_cache_dtypes: [auto, "
      "fp8_e4m3], scales: [calibrated, unit], num_samples: [8, 16]}");
  CHECK(all.ids() == Strings{"m1/dynamic/float16", "m1/dynamic/fp8_e4m3/quantized/8",
                             "m1/dynamic/fp8_e4m3/quantized/16", "m1/dynamic/fp8_e4m3/unit",
                             "m1/fixed/float16/8", "m1/fixed/float16/16",
                             "m1/fixed/fp8_e4m3/unit/8", "m1/fixed/fp8_e4m3/unit/16", "m1/float16",
                             "m1/fp8_e4m3/unit"});
  CHECK(all.plan.meaningless ==
        std::map<std::string, int64_t>{{"calibrated scales without a recipe", 2},
                                       {"fixed asks for no scales of K and V", 2}});

  // Dynamic inputs and rows of weights need no text, so both caches run the same checkpoint.
  const Cell& plain = all.cell("m1/dynamic/float16");
  const Cell& unit = all.cell("m1/dynamic/fp8_e4m3/unit");
  REQUIRE(plain.calibration);
  CHECK(plain.calibration == unit.calibration);
  CHECK(all.plan.has_own_weights(plain));
  const PlannedCalibration& made = all.plan.calibrations[*plain.calibration];
  CHECK_FALSE(made.num_samples);
  CHECK_FALSE(made.kv_cache_dtype);
  CHECK_FALSE(recipe_of(made, all.sweep).modifiers[0].kv_cache_scheme);
  CHECK(recipe_of(made, all.sweep).modifiers[0].config_groups.size() == 1);
  // With scales of its own it is calibrated with them.
  const Cell& scaled = all.cell("m1/dynamic/fp8_e4m3/quantized/8");
  CHECK(scaled.calibration != plain.calibration);
  CHECK(recipe_of(all.plan.calibrations[*scaled.calibration], all.sweep)
            .modifiers[0]
            .kv_cache_scheme);
  // Static inputs are the same whatever the cache, and need text.
  CHECK(all.cell("m1/fixed/float16/8").calibration ==
        all.cell("m1/fixed/fp8_e4m3/unit/8").calibration);
  CHECK_FALSE(all.cell("m1/float16").calibration);
}

TEST_CASE("plan: recipes that differ in K and V alone are one where those are left out") {
  std::string text = test::sweep_text(
      "{models: m1, recipes: [dynamic, other], kv_cache_dtypes: "
      "[auto, fp8_e4m3], scales: [calibrated, unit]}");
  std::string other = test::kDynamicKvRecipe;
  other.replace(other.find("strategy: tensor"), 16, "strategy: tensor, observer: mse");
  text.insert(text.find("\ncalibration:"), "\n- other: " + other);
  const std::vector dtypes{KvDType::kFloat16, KvDType::kFloat16};
  const SweepPlan plan = expand(parse_sweep(text, "/"), dtypes);
  Strings ids;
  for (const Cell& cell : plan.cells) ids.push_back(cell.id);
  CHECK(ids == Strings{"m1/dynamic/float16", "m1/dynamic/fp8_e4m3/quantized/512",
                       "m1/dynamic/fp8_e4m3/unit", "m1/other/fp8_e4m3/quantized/512"});
  CHECK(plan.calibrations.size() == 3);
  CHECK(plan.cells[0].calibration == plan.cells[2].calibration);
}

TEST_CASE("plan: a checkpoint's own scales go with its own weights") {
  const PlannedSweep all("{models: m1, recipes: [max, dynamic], scales: checkpoint}");
  CHECK(all.ids() == Strings{"m1/fp8_e4m3/checkpoint"});
  CHECK(all.plan.calibrations.empty());
}

TEST_CASE("plan: one exact pass serves all recipes and dtypes, a quantized one only its own") {
  const PlannedSweep all(
      "{models: m1, recipes: [max, mse], kv_cache_dtypes: [fp8_e4m3, fp8_e5m2], "
      "kv_forward: [quantized, exact], num_samples: 8}");
  CHECK(all.plan.cells.size() == 8);
  CHECK(all.plan.calibrations.size() == 8);
  REQUIRE(all.plan.observations.size() == 1);
  CHECK_FALSE(all.plan.observations[0].observes_all);
  for (const PlannedCalibration& one : all.plan.calibrations)
    CHECK(one.observation.has_value() == (one.kv_forward == "exact"));

  // Static inputs need more than K and V, and what the pass shows serves the others too.
  const PlannedSweep more(
      "{models: [m1, second], recipes: [max, fixed], kv_cache_dtypes: [auto, fp8_e4m3], "
      "kv_forward: "
      "exact, num_samples: 8, shuffle_seeds: [null, 1]}");
  REQUIRE(more.plan.observations.size() == 4);
  for (const Observation& one : more.plan.observations) CHECK(one.observes_all);
}

TEST_CASE("plan: scales that attention judges come from a pass of their own") {
  std::string text = test::sweep_text(
      "{models: m1, recipes: [max, mse], kv_forward: [quantized, exact], num_samples: 8}");
  text.replace(text.find("observer: mse"), 13, "observer: attention_mse");
  const SweepFile sweep = parse_sweep(text, "/sweeps");
  const SweepPlan plan = expand(sweep, std::vector{KvDType::kFloat16, KvDType::kFloat16});
  CHECK(plan.calibrations.size() == 4);
  CHECK(plan.observations.size() == 1);
  for (const PlannedCalibration& one : plan.calibrations)
    CHECK(one.observation.has_value() == (one.kv_forward == "exact" && one.recipe == 0));
}

TEST_CASE("plan: text to calibrate with is asked for only where it is needed") {
  std::string text = test::sweep_text("{models: m1, recipes: max, num_samples: 8}");
  text.erase(text.find("calibration: {"), text.find("evaluation:") - text.find("calibration: {"));
  const std::vector dtypes{KvDType::kFloat16, KvDType::kFloat16};
  CHECK(test::message_of([&] { expand(parse_sweep(text, "/"), dtypes); }) ==
        "the sweep lacks the key 'calibration', whose data set m1/max/fp8_e4m3/quantized/8 needs "
        "for its scales");
  text.replace(text.find("recipes: max"), 12, "recipes: [max, dynamic], scales: unit");
  CHECK(expand(parse_sweep(text, "/"), dtypes).cells.size() == 2);
}

TEST_CASE("plan: a sweep without any cell says why") {
  CHECK(test::message_of([] { PlannedSweep("{recipes: fixed}"); }) ==
        "the sweep has no cell: fixed asks for no scales of K and V");
}

TEST_CASE("plan: a fingerprint changes with all that its result depends on, and nothing else") {
  const std::string grid =
      "{models: m1, recipes: [max, mse], kv_forward: exact, "
      "num_samples: 8}";
  const SweepInputs inputs{.version = "1",
                           .device = "cpu",
                           .model_sha256 = {"m", "n"},
                           .model_files_sha256 = {"t", "u"},
                           .compute_dtype = {"float32", "float32"},
                           .scales_sha256 = {""},
                           .calibration_sha256 = "c",
                           .evaluation_sha256 = "e",
                           .gsm8k_sha256 = "g",
                           .calibration_file_sha256 = "d",
                           .evaluation_file_sha256 = "f"};
  const auto fingerprints = [](const std::string& text, const SweepInputs& with) {
    const SweepFile sweep = parse_sweep(text, "/");
    SweepPlan plan = expand(sweep, std::vector{KvDType::kFloat16, KvDType::kFloat16});
    add_fingerprints(sweep, with, plan);
    return std::array{plan.cells[0].fingerprint, plan.cells[1].fingerprint,
                      plan.calibrations[0].fingerprint, plan.observations[0].fingerprint};
  };
  const std::string text = test::sweep_text(grid);
  const auto base = fingerprints(text, inputs);
  CHECK(std::set(base.begin(), base.end()).size() == 4);
  CHECK(base[0].size() == 64);
  /// Which of both cells, the first's calibration and the statistics are the same with that change.
  const auto same = [&](const std::string& changed, const SweepInputs& with) {
    const auto now = fingerprints(changed, with);
    std::string text_of;
    for (size_t i = 0; i < base.size(); ++i) text_of += now[i] == base[i] ? '=' : '!';
    return text_of;
  };
  const auto with = [&](auto change) {
    SweepInputs other = inputs;
    change(other);
    return same(text, other);
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return same(changed, inputs);
  };
  CHECK(with([](SweepInputs&) {}) == "====");
  CHECK(with([](SweepInputs& one) { one.version = "2"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.device = "cuda"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.model_sha256[0] = "x"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.model_sha256[1] = "x"; }) == "====");
  // A tokenizer makes other ids of the same text, a descriptor other text of the same data.
  CHECK(with([](SweepInputs& one) { one.model_files_sha256[0] = "x"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.model_files_sha256[1] = "x"; }) == "====");
  CHECK(with([](SweepInputs& one) { one.calibration_file_sha256 = "x"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.evaluation_file_sha256 = "x"; }) == "!!==");
  CHECK(with([](SweepInputs& one) { one.compute_dtype[0] = "bfloat16"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.calibration_sha256 = "x"; }) == "!!!!");
  CHECK(with([](SweepInputs& one) { one.evaluation_sha256 = "x"; }) == "!!==");
  CHECK(replaced("name: test", "name: other") == "====");
  CHECK(replaced("max_seq_length: 64", "max_seq_length: 65") == "!!!!");
  CHECK(replaced("max_seq_length: 64", "max_seq_length: 64, text_column: a") == "!!!!");
  CHECK(replaced("max_seq_length: 64", "max_seq_length: 64, chat_template_kwargs: {a: 1}") ==
        "!!!!");
  CHECK(replaced("max_seq_length: 32", "max_seq_length: 32, chat_template_kwargs: {a: 1}") ==
        "!!==");
  CHECK(replaced("max_seq_length: 32", "max_seq_length: 32, skip_bad_records: 1") == "!!==");
  CHECK(replaced("max_seq_length: 32", "max_seq_length: 33") == "!!==");
  CHECK(replaced("max_seq_length: 32", "max_seq_length: 32, text_column: a") == "!!==");
  CHECK(replaced("num_samples: 3", "num_samples: 4") == "!!==");
  CHECK(replaced("num_samples: 8", "num_samples: 9") == "!!!!");
  CHECK(replaced("kv_forward: exact, ", "kv_forward: exact, shuffle_seeds: 1, ") == "!!!!");
  CHECK(replaced("observer: static_minmax", "observer: percentile") == "!=!=");
  CHECK(replaced("kv_forward: exact", "kv_cache_dtypes: fp8_e5m2, kv_forward: exact") == "!!!=");
}

TEST_CASE("plan: answers have a fingerprint of their own, of the questions and not of the text") {
  const auto cells_of = [](const std::string& gsm8k, const std::string& evaluated) {
    const SweepFile sweep =
        parse_sweep(test::sweep_text("{models: m1, kv_cache_dtypes: auto}") + gsm8k, "/");
    SweepPlan plan = expand(sweep, std::vector{KvDType::kFloat16, KvDType::kFloat16});
    add_fingerprints(sweep,
                     {.version = "1",
                      .device = "cpu",
                      .model_sha256 = {"m", "n"},
                      .model_files_sha256 = {"t", "u"},
                      .compute_dtype = {"float32", "float32"},
                      .scales_sha256 = {""},
                      .calibration_sha256 = "c",
                      .evaluation_sha256 = evaluated,
                      .gsm8k_sha256 = "g",
                      .calibration_file_sha256 = "d",
                      .evaluation_file_sha256 = "f"},
                     plan);
    return std::pair{plan.cells[0].fingerprint, plan.cells[0].answer_fingerprint};
  };
  const std::string asked = "gsm8k: {dataset: q.jsonl, fewshot_dataset: t.jsonl, limit: 5}\n";
  const auto base = cells_of(asked, "e");
  CHECK(base.second.size() == 64);
  CHECK(cells_of("", "e") == std::pair{base.first, std::string()});
  CHECK(cells_of(asked, "f").first != base.first);
  CHECK(cells_of(asked, "f").second == base.second);
  const std::string fewer = "gsm8k: {dataset: q.jsonl, fewshot_dataset: t.jsonl, limit: 4}\n";
  CHECK(cells_of(fewer, "e").first == base.first);
  CHECK(cells_of(fewer, "e").second != base.second);
}
