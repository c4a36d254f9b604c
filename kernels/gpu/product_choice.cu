#include "kernels/gpu/product_choice.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kernels/gpu/device.h"

namespace kvcal::gpu {
namespace {

/// A candidate is worth another kernel than the library's favourite if it is this much faster.
constexpr double kWorthwhile = 0.98;

std::string share_text(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", share);
  return text;
}

}  // namespace

/// Tries the candidates of one shape.
class ProductChoices::Trial {
 public:
  /// flop: of the shorter product.
  Trial(ProductChoices& choices, double flop, double expected_rate)
      : choices_(choices), flop_(flop), expected_(flop / expected_rate) {
    // No product is expected to take less time than one of fewer operations took.
    for (const auto& [operations, milliseconds] : choices.slowest_)
      if (operations <= flop) expected_ = std::max(expected_, milliseconds);
  }

  bool has_time() const { return has_time(kProductsOfTrial); }

  /// The fastest admissible candidate of those for which there is time; exists is false where none
  /// was found.
  ChosenAlgorithm fastest(std::span<const Algorithm> candidates, ProductProbe& probe) {
    probe_ = &probe;
    for (const Algorithm& candidate : candidates) {
      if (!has_time()) break;
      time(candidate);
    }
    if (timed_.empty()) return {};           // no time, or all were refused
    const Timed favourite = timed_.front();  // proven
    std::ranges::stable_sort(timed_, {}, &Timed::milliseconds);
    for (const Timed& one : timed_) {
      const bool is_favourite = one.algorithm == favourite.algorithm;
      if (!is_favourite && one.milliseconds > kWorthwhile * favourite.milliseconds) break;
      if (is_favourite || (has_time(kProductsOfProof) && is_proven(*one.algorithm)))
        return chosen(one, favourite);
    }
    return chosen(favourite, favourite);
  }
  int refused() const { return refused_; }

 private:
  /// A product with twice the rows counts as two.
  static constexpr double kProductsOfProof = 3, kProductsOfTrial = 2 + kProductsOfProof;

  struct Timed {
    const Algorithm* algorithm;
    double milliseconds;
  };

  bool has_time(double products) const {
    const double so_far = choices_.spent_ + choices_.clock_() - begin_;
    return so_far + products * expected_ <= kMostMilliseconds;
  }

  /// Whether the algorithm's sums are those of the first admissible one, which this may be. Refused
  /// ones are counted.
  bool is_proven(const Algorithm& algorithm) {
    const auto here = probe_->sums(algorithm);
    const auto elsewhere = here ? probe_->sums_elsewhere(algorithm) : std::nullopt;
    const bool is_admissible = here && here == elsewhere && (!sums_ || *sums_ == *here);
    if (is_admissible) sums_ = here;
    refused_ += is_admissible ? 0 : 1;
    return is_admissible;
  }

  /// Times a candidate with the right sums. The first one is proven before; of the others only the
  /// fastest need to be.
  void time(const Algorithm& candidate) {
    if (!sums_) {
      if (!is_proven(candidate)) return;
    } else if (probe_->sums(candidate) != sums_) {
      ++refused_;
      return;
    }
    const double begin = choices_.clock_();
    if (!probe_->run(candidate)) return;
    timed_.push_back({&candidate, choices_.clock_() - begin});
    expected_ = slowest_ = std::max(slowest_, timed_.back().milliseconds);
    choices_.slowest_[flop_] = slowest_;
  }

  ChosenAlgorithm chosen(const Timed& one, const Timed& favourite) const {
    std::string reason = "fastest of " + std::to_string(timed_.size()) + " timed";
    if (one.algorithm != favourite.algorithm)
      reason += ", in " + share_text(one.milliseconds / favourite.milliseconds) +
                " of the first one's time";
    return {.exists = true, .algorithm = *one.algorithm, .reason = reason + refused_text()};
  }
  std::string refused_text() const {
    return refused_ == 0 ? "" : ", " + std::to_string(refused_) + " refused";
  }

  ProductChoices& choices_;
  ProductProbe* probe_ = nullptr;
  const double flop_;
  double expected_, slowest_ = 0.0;  ///< milliseconds of a product
  const double begin_ = choices_.clock_();
  std::optional<uint64_t> sums_;
  std::vector<Timed> timed_;
  int refused_ = 0;
};

ProductChoices& ProductChoices::of_process() {
  static ProductChoices choices([] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  });
  return choices;
}

ChosenAlgorithm ProductChoices::choose(const std::string& key, AlgorithmLibrary& library,
                                       Stream& stream, const MatmulProblem& shape, bool times) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = chosen_.try_emplace(key);
  ChosenAlgorithm& choice = entry->second;
  if (!is_new) return choice;
  const std::vector<Algorithm> candidates = library.algorithms(shape);
  if (candidates.empty()) return choice;
  std::string why = candidates.size() == 1 ? "the only one" : "not timed";
  if (times && candidates.size() > 1) {
    const double begin = clock_();
    const double flop = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(shape.in) *
                        static_cast<double>(shape.out_features);
    Trial trial(*this, flop, shape.element_bytes() > 2 ? kExpectedRate / 10 : kExpectedRate);
    why = "no time was left for others";
    if (trial.has_time()) {
      const auto probe = ProductProbe::make(library, stream, shape);
      if (probe) choice = trial.fastest(candidates, *probe);
      if (!probe) why = "no memory to try others";
      if (trial.refused() > 0) why = std::to_string(trial.refused()) + " refused";
    }
    spent_ += clock_() - begin;
  }
  if (!choice.exists)
    choice = {.exists = true, .algorithm = candidates.front(), .reason = "first, " + why};
  return choice;
}

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

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 512;
constexpr size_t kMostBytes = size_t{4} << 30, kPiece = 256;
/// Of the free memory, most is left to others: the next layer is packed meanwhile.
constexpr size_t kFreeShare = 8;
/// The first row of x that the shorter product has too, a part of its rows: no multiple of a tile.
constexpr int64_t kShift = 37;

__device__ inline uint64_t mixed(uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

/// The first three are those of ComputeType.
enum class Elements { kFloat32, kBFloat16, kFloat16, kE4m3Fn };

/// Numbers of either sign between 2^-6 and 4, whose exponents vary, so that nearly every sum is
/// rounded and its last bits tell the order of its terms.
__global__ void fill_kernel(void* out, Elements type, int64_t count, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint64_t word = mixed(seed + static_cast<uint64_t>(i));
    const auto sign = static_cast<uint32_t>(word & 1), mantissa = static_cast<uint32_t>(word >> 8);
    const auto exponent = static_cast<uint32_t>(word >> 4 & 7);
    if (type == Elements::kFloat32)
      static_cast<uint32_t*>(out)[i] = sign << 31 | (121 + exponent) << 23 | (mantissa & 0x7fffffu);
    else if (type == Elements::kBFloat16)
      static_cast<uint16_t*>(out)[i] =
          static_cast<uint16_t>(sign << 15 | (121 + exponent) << 7 | (mantissa & 0x7fu));
    else if (type == Elements::kFloat16)
      static_cast<uint16_t*>(out)[i] =
          static_cast<uint16_t>(sign << 15 | (9 + exponent) << 10 | (mantissa & 0x3ffu));
    else
      static_cast<uint8_t*>(out)[i] =
          static_cast<uint8_t>(sign << 7 | (1 + exponent) << 3 | (mantissa & 7u));
  }
}

/// Adds up words of places and bits, which gives the same digest in any order. Word: the bits of an
/// element of out.
template <class Word>
__global__ void digest_kernel(const Word* out, int64_t rows, int64_t features, int64_t stride,
                              unsigned long long* digest) {
  uint64_t sum = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for (int64_t n = threadIdx.x; n < features; n += blockDim.x)
      sum += mixed(static_cast<uint64_t>(row * features + n) << 32 ^ out[row * stride + n]);
  atomicAdd(digest, static_cast<unsigned long long>(sum));
}

Launch spread(Stream& stream, int64_t count) {
  return {.stream = stream,
          .blocks = smaller(kMostBlocks, ceil_div(count, int64_t{kThreads})),
          .threads = kThreads};
}

Elements elements_of(const MatmulProblem& problem) {
  return problem.is_fp8 ? Elements::kE4m3Fn : static_cast<Elements>(problem.type);
}

size_t padded(int64_t count, size_t bytes) {
  return (static_cast<size_t>(count) * bytes + kPiece - 1) / kPiece * kPiece;
}
size_t x_bytes(const MatmulProblem& shape, int64_t rows) {
  return padded(2 * rows * shape.in, shape.element_bytes());
}
size_t weight_bytes(const MatmulProblem& shape) {
  return padded(shape.out_features * shape.in, shape.element_bytes());
}
size_t out_bytes(const MatmulProblem& shape, int64_t rows) {
  return padded(2 * rows * shape.out_stride, bytes_of(shape.out_type));
}

}  // namespace

std::unique_ptr<ProductProbe> ProductProbe::make(AlgorithmLibrary& library, Stream& stream,
                                                 const MatmulProblem& shape) {
  const int64_t rows = library.rows();
  const size_t bytes = x_bytes(shape, rows) + weight_bytes(shape) + out_bytes(shape, rows) + kPiece;
  if (bytes > kMostBytes || bytes > memory_state().free / kFreeShare) return nullptr;
  auto* memory = static_cast<std::byte*>(allocate_device(bytes));
  if (!memory) return nullptr;
  return std::unique_ptr<ProductProbe>(new ProductProbe(library, stream, shape, memory));
}

ProductProbe::ProductProbe(AlgorithmLibrary& library, Stream& stream, const MatmulProblem& shape,
                           std::byte* memory)
    : library_(library), stream_(stream), shape_(shape), memory_(memory) {
  const int64_t rows = library.rows();
  x_ = memory;
  weight_ = x_ + x_bytes(shape, rows);
  out_ = weight_ + weight_bytes(shape);
  digest_ = out_ + out_bytes(shape, rows);
  shape_.accumulate = false;  // the sums alone
  shape_.scales = {};
  shape_.weight = weight_;
  shape_.out = out_;
  shared_rows_ = rows - kShift;
  const auto fill = [&](std::byte* data, int64_t count, uint64_t seed) {
    launch("filling a probe", spread(stream, count), fill_kernel, static_cast<void*>(data),
           elements_of(shape), count, seed);
  };
  fill(x_, 2 * rows * shape.in, 1);
  fill(weight_, shape.out_features * shape.in, uint64_t{1} << 48);
}

ProductProbe::~ProductProbe() {
  try {
    stream_.synchronize();
  } catch (...) {  // the device failed, which is told by whoever uses it next
  }
  release_device(memory_);
}

bool ProductProbe::multiply(const Algorithm& algorithm, int64_t first, int64_t rows) {
  MatmulProblem problem = shape_;
  problem.x = x_ + static_cast<size_t>(first * shape_.in) * shape_.element_bytes();
  problem.rows = rows;
  if (!library_.takes_rows(algorithm, problem)) return false;
  try {
    library_.multiply(stream_, problem, algorithm);
  } catch (const Error&) {
    forget_last_error();
    return false;
  }
  return true;
}

bool ProductProbe::run(const Algorithm& algorithm) {
  const bool runs = multiply(algorithm, kShift, library_.rows());
  stream_.synchronize();
  return runs;
}

std::optional<uint64_t> ProductProbe::sums(const Algorithm& algorithm) {
  // What an earlier product left would pass for this one's.
  stream_.fill_zero(out_, out_bytes(shape_, library_.rows()));
  if (!multiply(algorithm, kShift, library_.rows())) return std::nullopt;
  return digest(0);
}

std::optional<uint64_t> ProductProbe::sums_elsewhere(const Algorithm& algorithm) {
  stream_.fill_zero(out_, out_bytes(shape_, library_.rows()));
  if (!multiply(algorithm, 0, 2 * library_.rows()) && !multiply(algorithm, 0, library_.rows()))
    return std::nullopt;
  return digest(kShift);
}

uint64_t ProductProbe::digest(int64_t first) {
  stream_.fill_zero(digest_, sizeof(uint64_t));
  const auto add = [&](auto word) {
    using Word = decltype(word);
    launch("digesting sums",
           {.stream = stream_, .blocks = smaller(kMostBlocks, shared_rows_), .threads = kThreads},
           digest_kernel<Word>, reinterpret_cast<const Word*>(out_) + first * shape_.out_stride,
           shared_rows_, shape_.out_features, shape_.out_stride,
           reinterpret_cast<unsigned long long*>(digest_));
  };
  if (shape_.out_type == ComputeType::kFloat32)
    add(uint32_t{});
  else
    add(uint16_t{});
  uint64_t found = 0;
  stream_.copy(&found, digest_, sizeof(found));
  stream_.synchronize();
  return found;
}

}  // namespace kvcal::gpu
