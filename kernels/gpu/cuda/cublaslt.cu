// NVIDIA's matrix library, loaded at run time, so that one binary starts everywhere.
#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <set>
#include <tuple>

#include "kernels/gpu/vendor_library.h"
#include "kernels/gpu/vendor_matmul.h"

namespace kvcal::gpu {
namespace {

/// Number of rows for the choice of an algorithm. The algorithm then serves any number of rows, so
/// that a row's sum always has the same order.
constexpr int64_t kChosenForRows = 8192;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
/// Guaranteed alignment of matrices and their rows.
constexpr uint32_t kAlignment = 16;
/// Number of requested algorithms; the first that sums in one sequence is used.
constexpr int kAsked = 8;

/// Functions that every supported version has.
const LibrarySearch kSearch{
    .title = "cuBLASLt",
    .names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
    .functions = {"cublasLtCreate", "cublasLtDestroy", "cublasLtGetVersion",
                  "cublasLtGetStatusString", "cublasLtMatmul", "cublasLtMatmulAlgoCheck",
                  "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulDescCreate",
                  "cublasLtMatmulDescDestroy", "cublasLtMatmulDescSetAttribute",
                  "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy",
                  "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatrixLayoutCreate",
                  "cublasLtMatrixLayoutDestroy"},
    .remedy = "install it (pip install nvidia-cublas)"};

/// The functions that kvcal calls.
struct Library {
  FoundLibrary found = find_library(kSearch, library_places({"/usr/local/cuda/lib64"}));
  template <class Function>
  Function* find(const char* name) const {
    return found.handle ? reinterpret_cast<Function*>(dlsym(found.handle, name)) : nullptr;
  }
#define KVCAL_FUNCTION(name) decltype(::name)* name = find<decltype(::name)>(#name)
  KVCAL_FUNCTION(cublasLtCreate);
  KVCAL_FUNCTION(cublasLtDestroy);
  KVCAL_FUNCTION(cublasLtGetVersion);
  KVCAL_FUNCTION(cublasLtGetStatusString);
  KVCAL_FUNCTION(cublasLtMatmul);
  KVCAL_FUNCTION(cublasLtMatmulAlgoCheck);
  KVCAL_FUNCTION(cublasLtMatmulAlgoConfigGetAttribute);  // may be missing
  KVCAL_FUNCTION(cublasLtMatmulAlgoGetHeuristic);
  KVCAL_FUNCTION(cublasLtMatmulDescCreate);
  KVCAL_FUNCTION(cublasLtMatmulDescDestroy);
  KVCAL_FUNCTION(cublasLtMatmulDescSetAttribute);
  KVCAL_FUNCTION(cublasLtMatmulPreferenceCreate);
  KVCAL_FUNCTION(cublasLtMatmulPreferenceDestroy);
  KVCAL_FUNCTION(cublasLtMatmulPreferenceSetAttribute);
  KVCAL_FUNCTION(cublasLtMatrixLayoutCreate);
  KVCAL_FUNCTION(cublasLtMatrixLayoutDestroy);
#undef KVCAL_FUNCTION
  void check(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail("cuBLASLt: ", what, ": ", cublasLtGetStatusString(status));
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

cudaDataType_t data_type_of(ComputeType type) {
  return type == ComputeType::kFloat32    ? CUDA_R_32F
         : type == ComputeType::kBFloat16 ? CUDA_R_16BF
                                          : CUDA_R_16F;
}
cudaDataType_t data_type_of(const MatmulProblem& problem) {
  return problem.is_fp8 ? CUDA_R_8F_E4M3 : data_type_of(problem.type);
}

/// The library is column-major: out [out_features, rows] = weightᵀ [out_features, in] · x [in,
/// rows].
class Description {
 public:
  Description(const MatmulProblem& problem, int64_t rows) {
    const auto type = data_type_of(problem);
    const Library& lt = library();
    // No short floats of tensor cores for float32.
    lt.check(lt.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    set(CUBLASLT_MATMUL_DESC_TRANSB, plain);
    if (problem.bias) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
    }
    if (problem.is_fp8) {
      const int8_t fast_sums = 0;  // fewer bits than float32
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast_sums);
      if (problem.scales.weight) set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, problem.scales.weight);
      if (problem.scales.x) set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, problem.scales.x);
    }
    layout(weight, type, problem.in, problem.out_features, problem.in);
    layout(x, type, problem.in, rows, problem.in);
    layout(out, data_type_of(problem.out_type), problem.out_features, rows, problem.out_stride);
  }
  ~Description() {
    const Library& lt = library();
    for (const auto matrix : {weight, x, out})
      if (matrix) lt.cublasLtMatrixLayoutDestroy(matrix);
    if (product) lt.cublasLtMatmulDescDestroy(product);
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    const Library& lt = library();
    lt.check(lt.cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
             "describing");
  }
  static void layout(cublasLtMatrixLayout_t& made, cudaDataType_t type, int64_t rows,
                     int64_t columns, int64_t stride) {
    const Library& lt = library();
    lt.check(lt.cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                           static_cast<uint64_t>(columns), stride),
             "describing");
  }
};

class Preference {
 public:
  Preference() {
    const Library& lt = library();
    lt.check(lt.cublasLtMatmulPreferenceCreate(&handle), "describing");
    // Sums in one sequence; split sums would depend on the number of rows.
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint64_t workspace = kWorkspaceBytes;
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    for (const auto side :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(side, kAlignment);
  }
  ~Preference() { library().cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  cublasLtMatmulPreference_t handle = nullptr;

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    const Library& lt = library();
    lt.check(lt.cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof(value)),
             "describing");
  }
};

/// Key of the chosen algorithms: everything in a problem that the choice depends on.
using Key = std::tuple<cudaDataType_t, ComputeType, int64_t, int64_t, int64_t, bool, bool, int64_t>;

struct Chosen {
  bool exists = false;
  cublasLtMatmulAlgo_t algorithm{};
  std::set<int64_t> rows_taken, rows_refused;
};

class CublasLt : public VendorMatmul {
 public:
  CublasLt() {
    const Library& lt = library();
    if (const auto status = lt.cublasLtCreate(&handle_); status != CUBLAS_STATUS_SUCCESS)
      fail("cuBLASLt of ", lt.found.path, " does not start (", lt.cublasLtGetStatusString(status),
           "): set ", kLibraryPathVariable, " to one that fits the driver");
  }
  ~CublasLt() override {
    for (const auto& [stream, workspace] : workspaces_) release_device(workspace);
    library().cublasLtDestroy(handle_);
  }

  std::string name() const override {
    const size_t version = library().cublasLtGetVersion();  // 130002, or 120805
    return "cuBLASLt " + std::to_string(version / 10000) + "." +
           std::to_string(version / 100 % 100);
  }

  /// Checks each problem itself; only the later steps are cached by shape. With aligned rows, all
  /// rows start like the first, which starts like its buffer. So the answer depends neither on the
  /// number of rows nor on which rows are multiplied together.
  bool takes(const MatmulProblem& problem) override {
    return has_plain_scales(problem) && has_aligned_rows(problem) && is_aligned(problem) &&
           chosen(problem).exists;
  }

  bool runs_side_by_side() const override { return true; }

  void run(Stream& stream, DeviceMemory& memory, const MatmulProblem& problem) override {
    Chosen& choice = chosen(problem);
    KVCAL_CHECK(choice.exists);
    if (takes_rows(choice, problem)) return multiply(stream, choice, problem);
    run_in_fixed_rows(stream, memory, problem, rows_chosen_for(problem),
                      [&](const MatmulProblem& part) { multiply(stream, choice, part); });
  }

 private:
  /// FP8 supports one scale per matrix, and another form of bias.
  static bool has_plain_scales(const MatmulProblem& problem) {
    const ProductScales& scales = problem.scales;
    return !problem.is_fp8 || (!scales.per_row && !scales.per_feature && !problem.bias);
  }
  /// FP8 needs more than aligned rows.
  static bool has_aligned_rows(const MatmulProblem& problem) {
    const int64_t of_16_bytes = kAlignment / static_cast<int64_t>(bytes_of(problem.out_type));
    const int64_t features = problem.is_fp8 ? 16 : of_16_bytes;
    return static_cast<size_t>(problem.in) * problem.element_bytes() % kAlignment == 0 &&
           problem.out_stride % of_16_bytes == 0 && problem.out_features % features == 0;
  }
  static bool is_aligned(const MatmulProblem& problem) {
    const void* const out = problem.out;
    const void* const bias = problem.bias;
    for (const void* data : {problem.x, problem.weight, out, bias})
      if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) return false;
    return true;
  }
  static int64_t rows_chosen_for(const MatmulProblem& problem) {
    return problem.is_decoding ? problem.rows : kChosenForRows;
  }

  Chosen& chosen(const MatmulProblem& problem) {
    const Key key{data_type_of(problem),   problem.out_type,        problem.in,
                  problem.out_features,    problem.out_stride,      problem.accumulate,
                  problem.bias != nullptr, rows_chosen_for(problem)};
    const auto [entry, is_new] = chosen_.try_emplace(key);
    if (is_new) choose(problem, entry->second);
    return entry->second;
  }

  void choose(const MatmulProblem& problem, Chosen& choice) {
    const Description description(problem, rows_chosen_for(problem));
    const Preference preference;
    cublasLtMatmulHeuristicResult_t results[kAsked] = {};
    int found = 0;
    const auto status = library().cublasLtMatmulAlgoGetHeuristic(
        handle_, description.product, description.weight, description.x, description.out,
        description.out, preference.handle, kAsked, results, &found);
    if (status != CUBLAS_STATUS_SUCCESS) return;
    for (int i = 0; i < found && !choice.exists; ++i) {
      if (results[i].state != CUBLAS_STATUS_SUCCESS || !is_unsplit(results[i].algo)) continue;
      choice.exists = true;
      choice.algorithm = results[i].algo;
    }
  }

  /// Whether a sum is computed in one sequence. A library that cannot tell was asked for such
  /// algorithms.
  static bool is_unsplit(const cublasLtMatmulAlgo_t& algorithm) {
    const Library& lt = library();
    if (!lt.cublasLtMatmulAlgoConfigGetAttribute) return true;
    int32_t splits = 0;
    size_t written = 0;
    const auto status = lt.cublasLtMatmulAlgoConfigGetAttribute(
        &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits), &written);
    return status == CUBLAS_STATUS_SUCCESS && splits <= 1;
  }

  bool takes_rows(Chosen& choice, const MatmulProblem& problem) {
    if (choice.rows_taken.contains(problem.rows)) return true;
    if (choice.rows_refused.contains(problem.rows)) return false;
    const Description description(problem, problem.rows);
    cublasLtMatmulHeuristicResult_t result{};
    const auto status = library().cublasLtMatmulAlgoCheck(
        handle_, description.product, description.weight, description.x, description.out,
        description.out, &choice.algorithm, &result);
    const bool takes = status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes;
    (takes ? choice.rows_taken : choice.rows_refused).insert(problem.rows);
    return takes;
  }

  void multiply(Stream& stream, const Chosen& choice, const MatmulProblem& problem) {
    void* const workspace = workspace_of(stream);
    const Description description(problem, problem.rows);
    const float one = 1.0f, before = problem.accumulate ? 1.0f : 0.0f;
    library().check(
        library().cublasLtMatmul(handle_, description.product, &one, problem.weight,
                                 description.weight, problem.x, description.x, &before, problem.out,
                                 description.out, problem.out, description.out, &choice.algorithm,
                                 workspace, kWorkspaceBytes, stream.handle),
        "multiplying");
  }

  /// Products that run side by side may not share one.
  void* workspace_of(const Stream& stream) {
    void*& workspace = workspaces_[stream.handle];
    if (!workspace) workspace = allocate_device(kWorkspaceBytes);
    if (!workspace) fail("the device has no memory for cuBLASLt's workspace");
    return workspace;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<cudaStream_t, void*> workspaces_;
  std::map<Key, Chosen> chosen_;
};

}  // namespace

OpenedMatmul open_vendor_matmul() {
  if (!library().found.handle) return {.matmul = nullptr, .problem = library().found.problem};
  return {.matmul = std::make_unique<CublasLt>(), .problem = {}};
}

}  // namespace kvcal::gpu
