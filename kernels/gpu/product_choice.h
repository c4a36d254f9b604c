// Time chooses among equal bytes. ChosenMatmul has one algorithm of an AlgorithmLibrary
// (cuBLASLt) for each shape. ProductChoices times the library's candidates, and takes only those
// whose sums have the bytes of the first admissible one in any place and number of rows. So
// ranks, devices and resumed runs may choose differently.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/gpu/vendor_matmul.h"

namespace kvcal::gpu {

/// One of a library's ways to compute products of a shape.
struct Algorithm {
  std::array<uint64_t, 8> data{};  ///< the library's own description
  std::string text;                ///< for people: "66, tile 128x256, stages 64xAUTO"
};

/// A vendor's library that offers algorithms for a product and runs the one that it is told.
class AlgorithmLibrary {
 public:
  virtual ~AlgorithmLibrary() = default;
  virtual std::string name() const = 0;  ///< "cuBLASLt 13.0"
  /// Whether it supports the types, scales, strides and addresses of such problems.
  virtual bool fits(const MatmulProblem& problem) const = 0;
  /// Rows of the product that an algorithm is chosen for.
  virtual int64_t rows() const = 0;
  /// Algorithms for the problem's shape with its number of rows, the library's favourite first. It
  /// leaves out those of which it knows that parts of a sum are computed side by side.
  virtual std::vector<Algorithm> algorithms(const MatmulProblem& problem) = 0;
  /// Whether the algorithm may run with the problem's number of rows.
  virtual bool takes_rows(const Algorithm& algorithm, const MatmulProblem& problem) = 0;
  virtual bool runs_side_by_side() const = 0;
  virtual void multiply(Stream& stream, const MatmulProblem& problem,
                        const Algorithm& algorithm) = 0;
};

/// Products of random numbers, to see what an algorithm does with the rows of a shape. Neither the
/// model's weights nor its activations matter, so what is found holds for every model.
class ProductProbe {
 public:
  /// nullptr where it would take more than an eighth of the free memory, of which the next layer
  /// needs some meanwhile, or than 4 GiB. The shorter product has library.rows() rows.
  static std::unique_ptr<ProductProbe> make(AlgorithmLibrary& library, Stream& stream,
                                            const MatmulProblem& shape);
  ~ProductProbe();
  ProductProbe(const ProductProbe&) = delete;
  ProductProbe& operator=(const ProductProbe&) = delete;

  /// Runs the shorter product and waits for it. False where the library refuses.
  bool run(const Algorithm& algorithm);
  /// The same, and a digest of the bytes of its sums: of the same rows for all algorithms.
  std::optional<uint64_t> sums(const Algorithm& algorithm);
  /// The digest of the same rows in a product of twice the rows, where they have another place too;
  /// of as many rows, at other places, where the library runs no other number.
  std::optional<uint64_t> sums_elsewhere(const Algorithm& algorithm);

 private:
  ProductProbe(AlgorithmLibrary& library, Stream& stream, const MatmulProblem& shape,
               std::byte* memory);
  bool multiply(const Algorithm& algorithm, int64_t first, int64_t rows);
  uint64_t digest(int64_t first);

  AlgorithmLibrary& library_;
  Stream& stream_;
  MatmulProblem shape_;
  std::byte* memory_;
  std::byte *x_, *weight_, *out_, *digest_;
  int64_t shared_rows_;
};

/// The algorithm for products of a shape, and why it was chosen.
struct ChosenAlgorithm {
  bool exists = false;
  Algorithm algorithm;
  std::string reason;  ///< "fastest of 5 timed, 2 refused"
};

/// A process's choices of algorithms, which its devices of one kind share, and the time that all
/// choosing together may take.
///
/// An algorithm is admissible if a row's bytes depend neither on the number of rows nor on the
/// row's place, as a probe shows, and if its sums have the same bytes as those of the first
/// admissible one. So time decides on speed alone: another choice gives the same bytes.
class ProductChoices {
 public:
  static constexpr double kMostMilliseconds = 300.0;
  /// Floating-point operations a millisecond that are expected of a device before anything was
  /// timed, of elements of 16 bits or fewer; a tenth of them of float32.
  static constexpr double kExpectedRate = 1e11;

  /// clock: milliseconds.
  explicit ProductChoices(std::function<double()> clock) : clock_(std::move(clock)) {}
  /// That of this process, with the machine's clock.
  static ProductChoices& of_process();

  /// The choice for key: an earlier one, or that of the library for this shape, which runs on an
  /// otherwise idle device. times: candidates are timed while time is left; else the first is
  /// taken.
  ChosenAlgorithm choose(const std::string& key, AlgorithmLibrary& library, Stream& stream,
                         const MatmulProblem& shape, bool times);
  /// Milliseconds that choosing took so far.
  double spent() const { return spent_; }

 private:
  class Trial;
  std::function<double()> clock_;
  std::mutex mutex_;
  double spent_ = 0.0;
  std::map<double, double> slowest_;  ///< milliseconds of products of so many operations
  std::map<std::string, ChosenAlgorithm> chosen_;
};

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
