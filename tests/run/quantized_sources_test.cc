// Calibrations of quantized checkpoints, against transformers in float32 with the decoded weights.
#include <algorithm>
#include <cmath>

#include "checkpoint/model_dir.h"
#include "convert/output_model.h"
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
                       {.written = [&](const CalibrationResult& written) { result = written; }});
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

/// Form of the output without --format. None reads scales beside codes of two or three bits, of an
/// order of activations, of 4-bit floats with a table, or of AWQ with rounded products.
std::string expected_format(const std::string& kind) {
  if (kind == "gpt_oss" || kind.starts_with("quark")) return "quark";
  if (kind == "autofp8" || kind.starts_with("fp8_")) return "fp8";
  if (kind.starts_with("modelopt_")) return "modelopt";
  for (const char* left : {"gptq_2", "gptq_3", "gptq_4", "gptq_dynamic", "awq_gemv_fast", "bnb_nf4",
                           "bnb_fp4", "fbgemm_fp8", "mxfp8_method", "gptqmodel_gptq"})
    if (kind == left) return "scales-json";
  return "compressed-tensors";
}

/// Checks format and notes of an output, and that codes and scales are the source's, byte for byte,
/// where they keep their form.
void check_written(const fs::path& folder, const CalibrationResult& result, size_t num_layers,
                   const std::string& notes) {
  const std::string kind = folder.filename().string();
  REQUIRE(result.output.folders.size() == 1);
  const std::string& format = result.output.folders[0].format;
  CHECK(format == expected_format(kind));
  CHECK(test::contains(notes, "--format scales-json is written") == (format == "scales-json"));
  if (format == "scales-json") return;
  const std::string source_form = read_kept_quantization(ModelDir(folder)).value().format;
  CHECK(test::contains(notes, "weights of " + source_form + " are written in the form of " +
                                  format) == (source_form != format));
  const ModelDir source(folder), written(result.output.folders[0].path);
  if (source_form != format && format == "compressed-tensors") return;
  for (const std::string& name : source.tensor_names())
    CHECK(std::ranges::equal(written.tensor(name).bytes, source.tensor(name).bytes));
  CHECK(written.tensor_names().size() == source.tensor_names().size() + 2 * num_layers);
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
    check_written(entry.path(), result, layers.size(), told.notes);
  }
  CHECK(count == 60);
}

TEST_CASE(
    "run: a recoded or kept checkpoint calibrates to the same scales again, and replaces them") {
  for (const char* kind : {"awq", "gptq_8", "gpt_oss", "packed_int4_zeros"}) {
    INFO(kind);
    const fs::path folder = test::tests_folder() / "fixtures" / "quantized" / kind;
    const Json ids = parse_json(read_text(folder / "expected.json")).at("ids");
    const ScratchFolder first_scratch, second_scratch;
    KeptNotes first_told, second_told;
    const auto first = calibrated(folder, ids, first_scratch, first_told);
    const auto second = calibrated(first_scratch / "out", ids, second_scratch, second_told);
    CHECK(test::contains(second_told.notes, "has KV scales already, which the new ones replace"));
    CHECK(second.output.manifest.at("layers") == first.output.manifest.at("layers"));
    const ModelDir before(first_scratch / "out"), after(second_scratch / "out");
    CHECK(after.tensor_names() == before.tensor_names());
    for (const std::string& name : before.tensor_names())
      CHECK(std::ranges::equal(after.tensor(name).bytes, before.tensor(name).bytes));
    CHECK(after.config() == before.config());
  }
}
