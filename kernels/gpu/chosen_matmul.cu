#include "kernels/gpu/chosen_matmul.h"

namespace kvcal::gpu {
namespace {

/// Everything in a problem that the choice of an algorithm depends on, for people and as a key.
std::string text_of(const MatmulProblem& problem) {
  std::string text = problem.is_fp8 ? "float8_e4m3fn" : std::string(name_of(problem.type));
  text += ", " + std::to_string(problem.in) + " to " + std::to_string(problem.out_features);
  if (problem.out_type != ComputeType::kFloat32)
    text += " in " + std::string(name_of(problem.out_type));
  if (problem.out_stride != problem.out_features)
    text += " of " + std::to_string(problem.out_stride);
  if (problem.bias) text += ", with bias";
  if (problem.accumulate) text += ", added";
  if (problem.is_decoding) text += ", " + std::to_string(problem.rows) + " rows";
  return text;
}

}  // namespace

ChosenMatmul::ChosenMatmul(std::unique_ptr<AlgorithmLibrary> library, MatmulOptions options,
                           ProductChoices& choices)
    : library_(std::move(library)), options_(std::move(options)), choices_(choices) {}

/// Checks each problem itself; only the choice is cached by shape. So the answer depends neither on
/// the number of rows nor on which rows are multiplied together.
bool ChosenMatmul::takes(const MatmulProblem& problem) {
  return library_->fits(problem) && choice_for(problem).chosen.exists;
}

ChosenMatmul::Choice& ChosenMatmul::choice_for(const MatmulProblem& problem) {
  const std::string shape_text = text_of(problem);
  for (Choice& made : made_)
    if (made.shape == shape_text) return made;
  MatmulProblem shape = problem;
  Choice& choice = made_.emplace_back();
  choice.shape = shape_text;
  choice.is_decoding = problem.is_decoding;
  // Rows of decoding are few, and a choice for their number may depend on it.
  if (!problem.is_decoding) shape.rows = library_->rows();
  const bool times = options_.times_products && !problem.is_decoding;
  const std::string key =
      options_.device + (times ? ", timed, " : ", ") + library_->name() + ", " + shape_text;
  choice.chosen = choices_.choose(key, *library_, trials_, shape, times);
  return choice;
}

bool ChosenMatmul::takes_rows(Choice& choice, const MatmulProblem& problem) {
  if (choice.rows_taken.contains(problem.rows)) return true;
  if (choice.rows_refused.contains(problem.rows)) return false;
  const bool takes = library_->takes_rows(choice.chosen.algorithm, problem);
  (takes ? choice.rows_taken : choice.rows_refused).insert(problem.rows);
  return takes;
}

void ChosenMatmul::run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) {
  Choice& choice = choice_for(problem);
  KVCAL_CHECK(choice.chosen.exists);
  const Algorithm& algorithm = choice.chosen.algorithm;
  if (takes_rows(choice, problem)) return library_->multiply(stream, problem, algorithm);
  run_in_fixed_rows(
      stream, memory, problem, problem.is_decoding ? problem.rows : library_->rows(),
      [&](const MatmulProblem& part) { library_->multiply(stream, part, algorithm); });
}

std::vector<ProductChoice> ChosenMatmul::choices() const {
  std::vector<ProductChoice> all;
  for (const Choice& choice : made_)
    if (choice.chosen.exists && !choice.is_decoding)
      all.push_back({.product = choice.shape,
                     .algorithm = choice.chosen.algorithm.text,
                     .reason = choice.chosen.reason});
  return all;
}

}  // namespace kvcal::gpu
