#include "sweep/sweep_file.h"

#include "support/catch.h"
#include "support/scratch_folder.h"
#include "sweep_fixture.h"

using namespace kvcal;
using kvcal::test::contains;
using kvcal::test::message_of;
using kvcal::test::sweep_text;

TEST_CASE("sweep file: names, paths and dimensions are as written, others as documented") {
  const SweepFile sweep = parse_sweep(
      sweep_text("[{recipes: [mse], kv_cache_dtypes: [auto, fp8_e5m2], scales: [calibrated, unit], "
                 "kv_forward: exact, num_samples: [8, 16], shuffle_seeds: [null, 42]}, "
                 "{models: second}]"),
      "/sweeps");
  CHECK(sweep.name == "test");
  REQUIRE(sweep.models.size() == 2);
  CHECK(sweep.models[0].name == "m1");
  CHECK(sweep.models[0].path == "/sweeps/m1");
  CHECK(sweep.models[1].name == "second");
  // No such folder is there, so it is an id of the hub.
  CHECK(sweep.models[1].path == "other/m2");
  REQUIRE(sweep.recipes.size() == 4);
  CHECK(sweep.recipes[1].name == "mse");
  CHECK(sweep.recipes[1].recipe.modifiers[0].kv_cache_scheme->observer == "mse");
  CHECK(sweep.calibration->dataset == "/sweeps/c.jsonl");
  CHECK(sweep.calibration->max_seq_length == 64);
  CHECK(sweep.evaluation.dataset == "/sweeps/e.txt");
  CHECK(sweep.evaluation.num_sequences == 3);
  CHECK(sweep.evaluation.max_seq_length == 32);
  CHECK(sweep.compute_dtype == "auto");
  CHECK_FALSE(sweep.keep_checkpoints);
  CHECK(sweep.pareto.x == "bytes_per_token");
  CHECK(sweep.pareto.y == "kl_mean");

  REQUIRE(sweep.grids.size() == 2);
  const SweepGrid& first = sweep.grids[0];
  CHECK(first.models == std::vector<size_t>{0, 1});
  CHECK(first.recipes == std::vector<std::optional<size_t>>{1});
  CHECK(first.kv_cache_dtypes ==
        std::vector<std::optional<CacheType>>{std::nullopt, KvDType::kFp8E5m2});
  CHECK(first.scales.size() == 2);
  CHECK(first.kv_forward == std::vector<std::string>{"exact"});
  CHECK(first.num_calibration_samples == std::vector<int64_t>{8, 16});
  CHECK(first.shuffle_seeds == std::vector<std::optional<uint64_t>>{std::nullopt, 42});
  const SweepGrid& second = sweep.grids[1];
  CHECK(second.models == std::vector<size_t>{1});
  CHECK(second.recipes.size() == 4);
  CHECK(second.kv_cache_dtypes == std::vector<std::optional<CacheType>>{KvDType::kFp8E4m3});
  CHECK(sweep.scales[second.scales[0]].kind == ScaleSource::Kind::kCalibrated);
  CHECK(second.kv_forward == std::vector<std::string>{"quantized"});
  CHECK(second.num_calibration_samples == std::vector<int64_t>{512});
  CHECK(second.shuffle_seeds == std::vector<std::optional<uint64_t>>{std::nullopt});
}

TEST_CASE("sweep file: the old name of num_samples is taken, and not beside the new one") {
  const SweepFile sweep = parse_sweep(sweep_text("{num_calibration_samples: [8, 16]}"), "/sweeps");
  CHECK(sweep.grids.at(0).num_calibration_samples == std::vector<int64_t>{8, 16});
  CHECK(contains(message_of([] {
                   parse_sweep(sweep_text("{num_samples: 8, num_calibration_samples: 8}"),
                               "/sweeps");
                 }),
                 "num_calibration_samples is the old name of num_samples, which is given"));
}

TEST_CASE("sweep file: scales are called by their folder or file, as other names are written") {
  const test::ScratchFolder folder;
  test::write_file(folder / "v1.5 b/kv_cache_scales.json", "{}");
  test::write_file(folder / "v1.5.json", "{}");
  const SweepFile sweep =
      parse_sweep(sweep_text("{scales: [v1.5 b, v1.5.json, v1.5 b/]}"), folder.path());
  REQUIRE(sweep.scales.size() == 2);
  CHECK(sweep.scales[0].name == "v1.5-b");
  CHECK(sweep.scales[1].name == "v1.5");
}

TEST_CASE("sweep file: columns and limit are those of the section's data set") {
  const SweepFile sweep = parse_sweep(
      "name: test\nmodels: [m]\n"
      "calibration: {dataset: c.csv, prompt_column: q, response_column: a, max_record_bytes: 77}\n"
      "evaluation: {dataset: e.csv, messages_column: chat, text_column: body}\ngrid: {}\n",
      "/sweeps");
  CHECK(to_json(sweep.calibration->records.columns) ==
        Json{{"prompt_column", "q"}, {"response_column", "a"}});
  CHECK(to_json(sweep.evaluation.records.columns) ==
        Json{{"text_column", "body"}, {"messages_column", "chat"}});
  CHECK(sweep.calibration->records.max_bytes == 77);
  CHECK(sweep.evaluation.records.max_bytes == kDefaultRecordBytes);
}

TEST_CASE("sweep file: conversations are rendered and records passed over as a section says") {
  const test::ScratchFolder folder;
  test::write_file(folder / "chat.jinja", "{{ messages }}");
  const SweepFile sweep = parse_sweep(
      "name: test\nmodels: [m]\n"
      "calibration:\n  dataset: c.jsonl\n  messages_column: body.messages\n"
      "  chat_template: chat.jinja\n  skip_bad_records: 1%\n  max_record_bytes: 16MiB\n"
      "  chat_template_kwargs: {thinking: false, effort: 'true', depth: [1, 2.5, null, a]}\n"
      "evaluation: {dataset: e.jsonl, skip_bad_records: 10}\ngrid: {}\n",
      folder.path());
  const RecordOptions& records = sweep.calibration->records;
  CHECK(records.columns.messages == "body.messages");
  CHECK(records.chat.template_file == (folder / "chat.jinja").string());
  CHECK(records.chat.variables ==
        parse_json(R"({"thinking": false, "effort": "true", "depth": [1, 2.5, null, "a"]})"));
  CHECK(records.skip.part == 0.01);
  CHECK(records.max_bytes == size_t{16} << 20);
  CHECK(sweep.evaluation.records.skip.records == 10);
  CHECK(sweep.evaluation.records.chat.variables.is_null());
}

TEST_CASE("sweep file: recipes and scales are found beside it") {
  const test::ScratchFolder folder;
  test::write_file(folder / "r/kv_mse.yaml", test::kv_recipe("mse"));
  test::write_file(folder / "s/other.json", "{}");
  test::write_file(
      folder / "sweep.yaml",
      "name: test\nmodels: [.]\nrecipes: [r/kv_mse.yaml]\nevaluation: {dataset: e.txt}\n"
      "grid: {scales: [s/other.json]}\n");
  const SweepFile sweep = read_sweep(folder / "sweep.yaml");
  CHECK(sweep.models[0].name == folder.path().filename());
  CHECK(sweep.recipes[0].name == "kv_mse");
  REQUIRE(sweep.scales.size() == 1);
  CHECK(sweep.scales[0].kind == ScaleSource::Kind::kFile);
  CHECK(sweep.scales[0].name == "other");
  CHECK(sweep.scales[0].path == folder / "s/other.json");

  test::write_file(folder / "bad.yaml", "name: test\nmodels: [.]\nrecipes: [r/none.yaml]\n");
  const std::string message = message_of([&] { read_sweep(folder / "bad.yaml"); });
  CHECK(contains(message,
                 (folder / "bad.yaml").string() + ": line 3, column 11: sweep.recipes[0]: "));
  CHECK(contains(message, "r/none.yaml"));
}

TEST_CASE("sweep file: what is wrong is told with its place") {
  const auto message = [](const std::string& text) {
    return message_of([&] { parse_sweep(text, "/sweeps"); });
  };
  const auto of_grid = [&](const std::string& grid) { return message(sweep_text(grid)); };
  CHECK(message("") == "the sweep is empty, expected a map of keys");
  CHECK(message("name: a") == "line 1, column 1: sweep: lacks the key 'models'");
  CHECK(contains(
      message("nam: a"),
      "line 1, column 1: sweep: unknown key 'nam' (did you mean 'name'?); known are name"));
  CHECK(contains(message("name: a b"), "line 1, column 7: sweep.name: found 'a b' as a name"));
  CHECK(contains(message("name: &x a"), "not taken in a sweep"));
  CHECK(contains(message("models: m"), "sweep.models: found 'm', expected a list of 1 to 1000"));
  CHECK(contains(message("models: [a/x, b/x]"),
                 "line 1, column 15: sweep.models[1]: the name 'x' is taken"));
  CHECK(contains(message("models: [{a: b, c: d}]"), "sweep.models[0]: found a map of 2 keys"));
  CHECK(contains(message("models: [{a/b: c}]"), "found 'a/b' as a name"));
  CHECK(contains(message("recipes: [{a: {b: c}}]"), "sweep.recipes[0].a: line 1, column 16: "));
  CHECK(contains(message("evaluation: {max_seq_length: 5}"), "lacks the key 'dataset'"));
  CHECK(contains(message("evaluation: {dataset: a, num_samples: 0}"),
                 "sweep.evaluation.num_samples: found 0, expected 1 to"));
  CHECK(contains(message("evaluation: {dataset: a, seed: 0}"), "unknown key 'seed'"));
  CHECK(contains(message("pareto: {y: kl}"),
                 "line 1, column 13: sweep.pareto.y: unknown metric 'kl'"));
  CHECK(contains(of_grid("{models: mm1}"), "which the sweep does not list (did you mean 'm1'?)"));
  CHECK(contains(of_grid("{recipes: [max, mxe]}"), "sweep.grid.recipes[1]: found 'mxe'"));
  CHECK(contains(of_grid("{kv_cache_dtypes: fp7}"), "unknown KV cache dtype 'fp7'"));
  CHECK(contains(of_grid("{kv_cache_dtypes: []}"), "expected one value or more"));
  CHECK(contains(of_grid("{scales: nowhere.json}"), "there is no /sweeps/nowhere.json"));
  CHECK(contains(of_grid("{kv_forward: fast}"), "expected quantized or exact"));
  CHECK(contains(of_grid("{num_samples: 0}"), "found 0, expected 1 to"));
  CHECK(contains(of_grid("{shuffle_seeds: -1}"), "expected null or a number from 0 on"));
  CHECK(contains(of_grid("{observers: mse}"), "sweep.grid: unknown key 'observers'"));
  CHECK(contains(of_grid("[]"), "expected a grid or more"));
}

TEST_CASE("sweep file: the number of combinations is bounded, also where it overflows") {
  std::string many = "[1";
  for (int i = 2; i <= 2000; ++i) many += ", " + std::to_string(i);
  many += "]";
  const auto message = [](const std::string& grid) {
    return message_of([&] { parse_sweep(sweep_text(grid), "/sweeps"); });
  };
  CHECK(contains(message("{num_samples: " + many + "}"), "more than 10000 combinations"));
  std::string grid = "{num_samples: " + many + ", shuffle_seeds: " + many;
  grid += ", kv_forward: [" + std::string("exact");
  for (int i = 0; i < 3000; ++i) grid += ", exact";
  CHECK(contains(message(grid + "]}"), "more than 10000 combinations"));
  CHECK(message("{models: m1, recipes: max, num_samples: " + many + "}") == "no error");
}
