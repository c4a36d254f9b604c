// A sweep in YAML and the plan of its grid.
#include "support/fuzz.h"
#include "sweep/plan.h"
#include "sweep/sweep_file.h"

using namespace kvcal;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const auto recipe =
      folder.write("kv.yaml", fuzz::fixture("../../recipes/fp8_kv_tensor.yaml"));
  fuzz::accepts([&] {
    const SweepFile sweep = parse_sweep(fuzz::text_of(data, size), folder.path());
    const std::vector<KvDType> dtypes(sweep.models.size(), KvDType::kBFloat16);
    SweepPlan plan = expand(sweep, dtypes);
    KVCAL_CHECK(!plan.cells.empty() && plan.num_merged() >= 0);
    for (const Cell& cell : plan.cells) coordinates_json(cell, sweep);
    add_fingerprints(sweep,
                     {.version = "1",
                      .device = "cpu",
                      .model_sha256 = std::vector<std::string>(sweep.models.size(), "m"),
                      .model_files_sha256 = std::vector<std::string>(sweep.models.size(), "f"),
                      .compute_dtype = std::vector<std::string>(sweep.models.size(), "bfloat16"),
                      .scales_sha256 = std::vector<std::string>(sweep.scales.size(), "s"),
                      .calibration_sha256 = "c",
                      .evaluation_sha256 = "e",
                      .gsm8k_sha256 = "g",
                      .calibration_file_sha256 = "d",
                      .evaluation_file_sha256 = "h"},
                     plan);
  });
  return 0;
}
