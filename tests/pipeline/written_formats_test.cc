// What our writers write, in front of the engines' own rules, which are kept apart from the
// writers: names, shapes, schema of kv_cache_scales.json, doubling (lib/engines, docs/verify.md).
#include <algorithm>
#include <set>

#include "engines/engine_verdicts.h"
#include "engines/verify.h"
#include "export/export_case.h"
#include "export/quantization_configs.h"
#include "export/writer.h"
#include "stored/quark_names.h"
#include "stored/weights.h"
#include "support/folders.h"

using namespace kvcal;
using namespace kvcal::test;

namespace {

/// What an engine holds of a layer's scales.
enum class Holds { kApart, kShared, kSharedKey };

/// One format in front of one engine.
struct Row {
  const char *format, *engine, *kv_cache_dtype;
  Holds holds = Holds::kApart;
  bool is_file = false;  ///< the engine is given kv_cache_scales.json
  int64_t tp_size = 1;
};

/// Every pair that is meant to work.
const std::vector<Row> kRows{
    {"compressed-tensors", "vllm", "auto"},
    {"compressed-tensors", "sglang", "auto"},
    {"compressed-tensors", "aphrodite", "auto"},
    {"compressed-tensors", "transformers@5.23", "auto"},
    {"compressed-tensors", "tgi", "auto"},
    {"modelopt", "vllm", "auto"},
    {"modelopt", "sglang", "auto"},
    {"modelopt", "aphrodite", "auto"},
    {"quark", "vllm", "fp8"},
    {"quark", "sglang", "fp8_e4m3"},
    {"tgi", "tgi", "fp8_e4m3", Holds::kShared},
    {"tgi", "tgi-branch", "fp8", Holds::kShared},
    {"scales-json", "sglang", "fp8_e4m3", Holds::kShared, true},
    {"scales-json", "sglang", "fp8_e4m3", Holds::kShared, true, 2},
    {"scales-json", "aphrodite-0.6", "fp8", Holds::kShared, true},
    {"scales-json", "aphrodite-0.6", "fp8", Holds::kShared, true, 4},
    {"compressed-tensors+tgi", "vllm", "auto", Holds::kSharedKey},
    {"compressed-tensors+tgi", "sglang", "auto", Holds::kSharedKey},
    {"compressed-tensors+tgi", "tgi", "auto"},
    {"compressed-tensors+tgi", "tgi-branch", "fp8", Holds::kShared},
    {"compressed-tensors+modelopt", "vllm", "auto"},
    {"compressed-tensors+modelopt", "sglang", "auto"},
    {"compressed-tensors+modelopt", "transformers@5.23", "auto"},
    {"modelopt+scales-json", "vllm", "auto"},
};

/// K is (2 * layer + 1) / 32, V (2 * layer + 2) / 32: exact in 16 bits.
class Written {
 public:
  explicit Written(const Row& row)
      : model_(test::tests_folder() / "fixtures" / "models" / "llama"),
        calibration_(calibration_of_attention(model_)) {
    const ExportInput input{.model = model_, .calibration = calibration_, .tp_size = row.tp_size};
    const auto writer = make_writer(row.format);
    writer->check(input);
    writer->write(input, scratch_.path());
  }

  VerifyReport verify(const Row& row) const {
    VerifyOptions options;
    options.kv_cache_dtype = row.kv_cache_dtype;
    options.tp_size = row.tp_size;
    if (!row.is_file) return verify_checkpoint(scratch_.path(), row.engine, options);
    options.scales = scratch_ / "kv_cache_scales.json";
    const ScratchFolder checkpoint;  // without the fixture's expectations, which engines would read
    for (const char* name : {"config.json", "model.safetensors"})
      fs::copy(model_.path() / name, checkpoint / name);
    return verify_checkpoint(checkpoint.path(), row.engine, options);
  }

  const Calibration& calibration() const { return calibration_; }

 private:
  ModelDir model_;
  Calibration calibration_;
  ScratchFolder scratch_;
};

void check_held(const EngineLayer& held, const AttentionCalibration& layer, Holds holds) {
  const float k = layer.k.scales[0].value, v = layer.v.scales[0].value;
  const float shared = std::max(k, v);
  for (const float value : held.k.values) CHECK(value == (holds == Holds::kApart ? k : shared));
  for (const float value : held.v.values) CHECK(value == (holds == Holds::kShared ? shared : v));
  CHECK_FALSE(held.k.source.empty());
  CHECK_FALSE(held.v.source.empty());
}

}  // namespace

TEST_CASE("every format holds, by the rules of the engines it is for, the scales that were given") {
  for (const Row& row : kRows) {
    INFO(row.format << " in front of " << row.engine << ", " << row.tp_size << " ranks");
    const Written written(row);
    const VerifyReport report = written.verify(row);
    for (const Finding& finding : report.findings) INFO(finding.message);
    CHECK(report.loads);
    CHECK(report.kv_cache_dtype != "auto");
    if (row.holds != Holds::kSharedKey) CHECK_FALSE(loses_scales(report));
    REQUIRE(report.layers.size() == written.calibration().layers.size());
    for (size_t layer = 0; layer < report.layers.size(); ++layer)
      check_held(report.layers[layer], written.calibration().layers[layer], row.holds);
  }
}

namespace {

/// The versions of engines that read Quark's form and hold these names of a type.
std::set<std::string> holding(const std::string& type, const KvScaleNames& names,
                              bool has_weights) {
  std::set<std::string> engines;
  const Json config = {{"model_type", type}};
  for (const auto& [name, rules] : engine_rules().rows()) {
    const auto reads = [](const EngineFormat& row) {
      return row.method == "quark" && row.otherwise == Reads::kYes;
    };
    const std::vector<std::string> both{std::string(names.k), std::string(names.v)};
    if (std::ranges::any_of(rules.formats, reads) && rules.seen().has_run(type) &&
        holds_names(rules, {.model_type = type,
                            .method = "quark",
                            .names = both,
                            .rests = both,
                            .has_weights = has_weights,
                            .config = &config}))
      engines.insert(name);
  }
  return engines;
}

}  // namespace

TEST_CASE("Quark's form has the names that more engines hold") {
  const KvScaleNames &own = kv_scale_format("output scales"),
                     &plain = kv_scale_format("compressed-tensors"),
                     &attention = kv_scale_format("attention scales");
  size_t plainly_named = 0, named_by_attention = 0;
  for (const auto& [type, misses] : choose_engine("sglang").rules().seen().types)
    for (const bool has_weights : {false, true}) {
      INFO(type << (has_weights ? ", with quantized weights" : ""));
      const size_t with_own = holding(type, own, has_weights).size(),
                   with_plain = holding(type, plain, has_weights).size(),
                   with_attention = holding(type, attention, has_weights).size();
      const KvScaleNames& chosen = quark_names({{"model_type", type}}, has_weights);
      CHECK(&chosen == (with_attention > std::max(with_own, with_plain) ? &attention
                        : with_plain > with_own                         ? &plain
                                                                        : &own));
      plainly_named += &chosen == &plain;
      named_by_attention += &chosen == &attention;
    }
  CHECK(plainly_named > 80);
  CHECK(named_by_attention > 40);
}
