#pragma once

#include <array>
#include <map>
#include <string>

#include "convert/support/convert_case.h"

namespace kvcal::test {

/// What a conversion begins or ends with, in the order of the tables. attn_head is
/// compressed-tensors with a scale a head. Files that hold all of them are in tests of their own.
inline constexpr std::array<const char*, 7> kForms{
    "compressed-tensors", "modelopt", "quark", "fp8", "tgi", "scales-json", "attn_head"};

/// What is done to the weights of a model, as lines of a recipe (empty: 16 bits), and where the
/// model is.
struct SourceWeights {
  std::string recipe;
  fs::path model;
};

/// All forms of one model with its weights in one way, and conversions between them.
class RoundTrips {
 public:
  /// ignored: a module without scales.
  RoundTrips(SourceWeights weights, ScaleOf scale_of, std::string ignored = {})
      : weights_(std::move(weights)),
        scale_of_(std::move(scale_of)),
        ignored_(std::move(ignored)) {}

  /// "same": there and back gives the bytes of every file. "merged": it gives those that `from` has
  /// where the scales are what `to` holds of them. "moved" and "merged, moved": the same, but for
  /// the shards that scales of K and V lie in. Else the first difference, or the error.
  std::string outcome(const std::string& from, const std::string& to);

 private:
  /// A checkpoint in one form and, of a form that is a file, where its scales are.
  struct Output {
    fs::path folder, checkpoint, scales;
  };

  fs::path new_folder() { return scratch_ / std::to_string(count_++); }
  /// Gone at the end of each outcome: memory is dear.
  fs::path passing_folder() { return passing() / std::to_string(count_++); }
  fs::path passing() const { return scratch_ / "passing"; }
  /// As calibrate writes it, once.
  const Output& written(const std::string& stored);
  void write(const std::string& stored, const fs::path& target, const std::string& merged_as);
  /// The model with its weights as a run leaves them, and no scales of K and V.
  fs::path without_scales();
  Output converted(const Output& source, const std::string& from, const std::string& to);
  Output converted_back(const Output& there, const std::string& to, const std::string& from);

  SourceWeights weights_;
  ScaleOf scale_of_;
  std::string ignored_;
  ScratchFolder scratch_;
  std::map<std::string, Output> written_;
  fs::path without_scales_;
  int count_ = 0;
};

}  // namespace kvcal::test
