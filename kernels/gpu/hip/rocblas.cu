// AMD's matrix library, loaded at run time, so that one binary starts everywhere and builds where
// the library is not installed. Source of the numbers below: rocblas-types.h.
#include <array>
#include <memory>

#include "kernels/gpu/vendor_library.h"
#include "kernels/gpu/vendor_matmul.h"

namespace kvcal::gpu {
namespace {

/// Fixed number of rows of every product: the library's choice of kernel depends on it, and with it
/// the order of a row's sum.
constexpr int64_t kRows = 2048;

constexpr int kSuccess = 0;                                     // rocblas_status
constexpr int kNone = 111, kTransposed = 112;                   // rocblas_operation
constexpr int kFloat16 = 150, kFloat32 = 151, kBFloat16 = 168;  // rocblas_datatype
constexpr int kStandardAlgorithm = 0;                           // rocblas_gemm_algo
constexpr int kAtomicsNotAllowed = 0;                           // rocblas_atomics_mode

using Handle = void*;
using CreateHandle = int(Handle*);
using DestroyHandle = int(Handle);
using SetStream = int(Handle, hipStream_t);
using SetAtomicsMode = int(Handle, int);
using GetVersionSize = int(size_t*);
using GetVersion = int(char*, size_t);
using StatusToString = const char*(int);
using GemmEx = int(Handle, int transposes_a, int transposes_b, int m, int n, int k,
                   const void* alpha, const void* a, int a_type, int lda, const void* b, int b_type,
                   int ldb, const void* beta, const void* c, int c_type, int ldc, void* d,
                   int d_type, int ldd, int compute_type, int algorithm, int32_t solution,
                   uint32_t flags);

/// A library brings the HIP runtime that it was built for, and streams of one runtime mean nothing
/// to another: that of ROCm 6 has another name than that of ROCm 7, and both can be loaded.
std::string runtime_problem(void* handle) {
  constexpr const char* kFunction = "hipStreamCreateWithFlags";
  const void* const of_library = dlsym(handle, kFunction);
  if (!of_library || of_library == dlsym(RTLD_DEFAULT, kFunction)) return "";
  Dl_info runtime{};
  const bool is_known = dladdr(of_library, &runtime) != 0 && runtime.dli_fname;
  return "is of another ROCm than this program: it needs " +
         std::string(is_known ? runtime.dli_fname : "another HIP runtime");
}

/// The first: of ROCm 7, of 6, of 5.6, of Debian and of ROCm up to 5.5, of PyTorch's packages.
const LibrarySearch kSearch{
    .title = "rocBLAS",
    .names = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0",
              "librocblas.so"},
    .functions = {"rocblas_create_handle", "rocblas_destroy_handle", "rocblas_set_stream",
                  "rocblas_set_atomics_mode", "rocblas_status_to_string", "rocblas_gemm_ex"},
    .problem_of = runtime_problem,
    .remedy = "install it (apt-get install librocblas0, or AMD's package rocblas)"};

struct Library {
  FoundLibrary found = find_library(kSearch, library_places(rocm_folders()));
  CreateHandle* create = found.function<CreateHandle>("rocblas_create_handle");
  DestroyHandle* destroy = found.function<DestroyHandle>("rocblas_destroy_handle");
  SetStream* set_stream = found.function<SetStream>("rocblas_set_stream");
  SetAtomicsMode* set_atomics_mode = found.function<SetAtomicsMode>("rocblas_set_atomics_mode");
  StatusToString* status_to_string = found.function<StatusToString>("rocblas_status_to_string");
  GemmEx* gemm_ex = found.function<GemmEx>("rocblas_gemm_ex");
  GetVersionSize* get_version_size =
      found.function<GetVersionSize>("rocblas_get_version_string_size");
  GetVersion* get_version = found.function<GetVersion>("rocblas_get_version_string");
  void check(int status, const char* what) const {
    if (status != kSuccess) fail("rocBLAS: ", what, ": ", status_to_string(status));
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

int type_of(ComputeType type) {
  return type == ComputeType::kFloat32    ? kFloat32
         : type == ComputeType::kBFloat16 ? kBFloat16
                                          : kFloat16;
}

class RocBlas : public VendorMatmul {
 public:
  RocBlas() {
    library().check(library().create(&handle_), "starting");
    library().check(library().set_atomics_mode(handle_, kAtomicsNotAllowed), "starting");
    probe();
  }
  ~RocBlas() override { library().destroy(handle_); }

  /// The library's text begins with its version: "5.0.2.abcdef12".
  std::string name() const override {
    const Library& blas = library();
    size_t size = 0;
    if (!blas.get_version_size || !blas.get_version || blas.get_version_size(&size) != kSuccess)
      return "rocBLAS";
    std::string version(size, '\0');
    if (size == 0 || blas.get_version(version.data(), size) != kSuccess) return "rocBLAS";
    return "rocBLAS " + version_in(version);
  }
  bool takes(const MatmulProblem& problem) override {
    constexpr int64_t kMost = int64_t{1} << 30;
    return !problem.is_fp8 && problem.out_type == ComputeType::kFloat32 &&
           works_[index_of(problem.type)] && problem.in < kMost && problem.out_stride < kMost;
  }
  /// The handle has one workspace for all streams.
  bool runs_side_by_side() const override { return false; }
  void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) override {
    library().check(library().set_stream(handle_, stream.handle), "choosing the stream");
    run_in_fixed_rows(
        stream, memory, problem, problem.is_decoding ? problem.rows : kRows,
        [&](const MatmulProblem& part) { library().check(multiply(part), "multiplying"); });
    if (problem.bias) add_bias(stream, problem);
  }

 private:
  static size_t index_of(ComputeType type) { return static_cast<size_t>(type); }

  /// Tries a tiny product of each element type, because a chip may not support all. Done here,
  /// because during products the device may be recording and accepts no other calls.
  void probe() {
    constexpr int64_t kWidth = 16;
    constexpr size_t kMatrixBytes = kWidth * kWidth * sizeof(float);
    const auto release = [](void* data) { release_device(data); };
    const std::unique_ptr<void, decltype(release)> memory(allocate_device(3 * kMatrixBytes),
                                                          release);
    if (!memory) fail("the device has no memory for trying rocBLAS");
    auto* matrices = static_cast<std::byte*>(memory.get());
    Stream stream;
    library().check(library().set_stream(handle_, stream.handle), "choosing the stream");
    stream.fill_zero(matrices, 3 * kMatrixBytes);
    for (const ComputeType type :
         {ComputeType::kFloat32, ComputeType::kBFloat16, ComputeType::kFloat16})
      works_[index_of(type)] = multiply({.type = type,
                                         .x = matrices,
                                         .weight = matrices + kMatrixBytes,
                                         .out = matrices + 2 * kMatrixBytes,
                                         .rows = kWidth,
                                         .in = kWidth,
                                         .out_features = kWidth,
                                         .out_stride = kWidth}) == kSuccess;
    stream.synchronize();
    library().check(library().set_stream(handle_, nullptr), "choosing the stream");
  }

  /// Returns the library's status. The library is column-major.
  int multiply(const MatmulProblem& problem) {
    const float one = 1.0f, before = problem.accumulate ? 1.0f : 0.0f;
    const int type = type_of(problem.type), in = static_cast<int>(problem.in);
    const int stride = static_cast<int>(problem.out_stride);
    return library().gemm_ex(handle_, kTransposed, kNone, static_cast<int>(problem.out_features),
                             static_cast<int>(problem.rows), in, &one, problem.weight, type, in,
                             problem.x, type, in, &before, problem.out, kFloat32, stride,
                             problem.out, kFloat32, stride, kFloat32, kStandardAlgorithm, 0, 0);
  }

  Handle handle_ = nullptr;
  std::array<bool, 3> works_{};  ///< of each ComputeType
};

}  // namespace

OpenedMatmul open_vendor_matmul(const MatmulOptions&) {
  if (!library().found.handle) return {.matmul = nullptr, .problem = library().found.problem};
  return {.matmul = std::make_unique<RocBlas>(), .problem = {}};
}

}  // namespace kvcal::gpu
