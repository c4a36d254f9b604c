#pragma once

#include <deque>
#include <set>

#include "kernels/gpu/product_choice.h"

namespace kvcal::gpu {

/// Products by a library that offers algorithms. One is chosen for each shape and then serves any
/// number of rows, so that a row's sum always has the same order.
class ChosenMatmul : public VendorMatmul {
 public:
  ChosenMatmul(std::unique_ptr<AlgorithmLibrary> library, MatmulOptions options,
               ProductChoices& choices = ProductChoices::of_process());

  std::string name() const override { return library_->name(); }
  bool takes(const MatmulProblem& problem) override;
  bool runs_side_by_side() const override { return library_->runs_side_by_side(); }
  void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) override;
  std::vector<ProductChoice> choices() const override;

 private:
  struct Choice {
    std::string shape;
    ChosenAlgorithm chosen;
    bool is_decoding = false;
    std::set<int64_t> rows_taken, rows_refused;
  };
  Choice& choice_for(const MatmulProblem& problem);
  bool takes_rows(Choice& choice, const MatmulProblem& problem);

  std::unique_ptr<AlgorithmLibrary> library_;
  MatmulOptions options_;
  ProductChoices& choices_;
  Stream trials_;
  std::deque<Choice> made_;  ///< of the few shapes that a model has, in order of first use
};

}  // namespace kvcal::gpu
