// Calibrations of quantized checkpoints, against transformers in float32 with the decoded weights.
#include <algorithm>
#include <cmath>

#include "checkpoint/model_dir.h"
#include "run/calibrate_checkpoint.h"
#include "support/catch.h"
#include "support/folders.h"
#include "support/scratch_folder.h"

using namespace kvcal;
using test::ScratchFolder;

namespace {

class KeptNotes : public SilentDiagnostics {
 public:
  std::string notes;
  void inform(const std::string& lines) override { notes += lines; }
};

CalibrationResult calibrated(const fs::path& model, const Json& ids, const ScratchFolder& scratch,
                             Diagnostics& diagnostics) {
  test::write_file(scratch / "ids.jsonl", Json({{"input_ids", ids}}).dump() + "\n");
  CalibrateRequest request;
  request.model = model.string();
  request.recipe = (test::source_folder() / "recipes/fp8_kv_tensor.yaml").string();
  request.dataset = (scratch / "ids.jsonl").string();
  request.output.output = (scratch / "out").string();
  request.kv_forward = "exact";
  request.device.device = "reference";
  request.device.compute_dtype = "float32";
  request.device.inputs = "16bit";  // as the dense copy
  RankSession session({.timeout = std::chrono::minutes(10),
                       .say = [](const std::string& message) { FAIL(message); }});
  std::optional<CalibrationResult> result;
  calibrate_checkpoint(request, session, diagnostics,
                       [&](const CalibrationResult& written) { result = written; });
  session.done();
  REQUIRE(result);
  return *result;
}

void check_extremes(const std::vector<Json>& layers, const Json& expected, const char* side) {
  const std::string key = std::string(side) + "_head_amax";
  REQUIRE(layers.size() == expected.at(side).size());
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (size_t head = 0; head < expected[side][layer].size(); ++head) {
      INFO(side << " of layer " << layer << ", head " << head);
      const double wanted = expected[side][layer][head], found = layers[layer].at(key).at(head);
      CHECK(std::fabs(found / wanted - 1.0) <= 1e-5);
    }
}

}  // namespace

TEST_CASE("run: quantized checkpoints of every form have transformers' K and V") {
  size_t count = 0;
  for (const auto& entry :
       fs::directory_iterator(test::tests_folder() / "fixtures" / "quantized")) {
    INFO(entry.path().filename().string());
    const ScratchFolder scratch;
    const Json expected = parse_json(read_text(entry.path() / "expected.json"));
    KeptNotes told;
    const CalibrationResult result = calibrated(entry.path(), expected.at("ids"), scratch, told);
    const std::vector<Json> layers = result.output.manifest.at("layers");
    for (const char* side : {"k", "v"}) check_extremes(layers, expected, side);
    ++count;
    // A written checkpoint has the source's codes and scales, byte for byte.
    REQUIRE(result.output.folders.size() == 1);
    const bool is_beside = result.output.folders[0].format == "scales-json";
    CHECK(test::contains(told.notes, "--format scales-json is written") == is_beside);
    if (is_beside) continue;
    const ModelDir source(entry.path()), written(scratch / "out");
    for (const std::string& name : source.tensor_names())
      CHECK(std::ranges::equal(written.tensor(name).bytes, source.tensor(name).bytes));
    CHECK(written.tensor_names().size() == source.tensor_names().size() + 2 * layers.size());
  }
  CHECK(count == 23);
}
