#pragma once

#include "report/checkpoint_report.h"

namespace kvcal::test {

/// A model's size, for reports with numbers that differ in every cell.
struct SampleSize {
  int64_t layers = 4, heads = 3;
  bool has_head_scales = false;
  int64_t linears_per_layer = 0;
};

report::CheckpointReport sample_report(const SampleSize& size);

/// Two engines and three layers: one that loads most scales, one that refuses the checkpoint. A
/// finding holds a script.
std::vector<VerifyReport> sample_engines();

}  // namespace kvcal::test
