#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/diagnostics.h"
#include "core/json.h"
#include "run/calibrate_request.h"

namespace kvcal {

/// What a calibration would read: its first samples as the model gets them, and the lengths of all.
struct SamplePreview {
  struct Shown {
    int64_t record = 0, num_tokens = 0;
    bool is_cut = false;
    std::string text;  ///< of its tokens; of data that is tokenized already, their numbers
  };
  std::string dataset, kind, chat_template;  ///< kind of records; chat_template: empty: none
  std::vector<Shown> samples = {};
  size_t num_samples = 0, num_cut = 0;
  int64_t num_tokens = 0, shortest = 0, longest = 0, max_seq_length = 0;
};

/// Reads, renders and tokenizes the samples, and runs no model. Throws Error as
/// calibrate_checkpoint does before it calibrates.
SamplePreview preview_samples(CalibrateRequest request, int64_t num_shown,
                              Diagnostics& diagnostics);
Json to_json(const SamplePreview& preview);
/// Lines for a terminal.
std::string sample_text(const SamplePreview& preview);

}  // namespace kvcal
