#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "run/calibrate_request.h"

namespace kvcal {

/// What a calibration would take: the same inputs are read, and the device is measured for a
/// moment. Upper bounds, but for the time.
struct CalibrationPreview {
  std::string device;
  size_t num_samples = 0;  ///< 0: the recipe runs no text
  int64_t num_tokens = 0;
  double seconds = 0.0;       ///< of computing; files are as fast as their disk
  double busy_seconds = 0.0;  ///< while other programs run as now; the same where none do
  uint64_t memory_bytes = 0;  ///< of the process; of a GPU, its memory
  std::optional<uint64_t> memory_available;  ///< the limit, or what the machine can give
  // Disk, in bytes:
  uint64_t output_bytes = 0, state_bytes = 0;
  uint64_t scratch_bytes = 0;          ///< of hidden states that memory does not hold
  uint64_t smoothed_bytes = 0;         ///< of the rewritten model that is calibrated
  std::optional<uint64_t> free_bytes;  ///< where the output goes
  std::filesystem::path disk;          ///< a folder of that disk

  uint64_t disk_bytes() const {
    return output_bytes + state_bytes + scratch_bytes + smoothed_bytes;
  }
  bool has_room() const { return !free_bytes || *free_bytes >= disk_bytes(); }
};

/// Bytes of the weights that the output holds; 0: none.
uint64_t output_bytes(const CalibrateRequest& request, const PlannedRun& plan);

/// Writes nothing; an output need not be named. Throws Error as calibrate_checkpoint does before it
/// calibrates, also where the memory cannot hold a layer. num_scored: models that then score the
/// request's text side by side, whose time is added.
CalibrationPreview preview_calibration(CalibrateRequest request, int num_scored,
                                       Diagnostics& diagnostics);

/// time_text, of a second at least: what is estimated is not "0 s".
std::string duration_text(double seconds);
/// "about 2 min", and how long where other programs make it longer.
std::string estimate_text(double seconds, double busy_seconds);
/// What --json prints.
Json to_json(const CalibrationPreview& preview);
/// Pairs of a label and a text of one line.
LabelledLines preview_lines(const CalibrationPreview& preview);

}  // namespace kvcal
