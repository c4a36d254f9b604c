// NVIDIA's matrix library, loaded at run time, so that one binary starts everywhere.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "kernels/gpu/product_choice.h"
#include "kernels/gpu/vendor_library.h"

namespace kvcal::gpu {
namespace {

/// Number of rows for the choice of an algorithm.
constexpr int64_t kChosenForRows = 8192;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
/// Guaranteed alignment of matrices and their rows.
constexpr uint32_t kAlignment = 16;
/// Number of requested algorithms.
constexpr int kAsked = 8;

/// Calls row(name) for each function that kvcal calls and every supported version has.
#define KVCAL_FUNCTIONS(row)                                                                     \
  row(cublasLtCreate) row(cublasLtDestroy) row(cublasLtGetVersion) row(cublasLtGetStatusString)  \
      row(cublasLtMatmul) row(cublasLtMatmulAlgoCheck) row(cublasLtMatmulAlgoGetHeuristic)       \
          row(cublasLtMatmulDescCreate) row(cublasLtMatmulDescDestroy)                           \
              row(cublasLtMatmulDescSetAttribute) row(cublasLtMatmulPreferenceCreate)            \
                  row(cublasLtMatmulPreferenceDestroy) row(cublasLtMatmulPreferenceSetAttribute) \
                      row(cublasLtMatrixLayoutCreate) row(cublasLtMatrixLayoutDestroy)

#define KVCAL_NAME(name) #name,
const LibrarySearch kSearch{.title = "cuBLASLt",
                            .names = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                            .functions = {KVCAL_FUNCTIONS(KVCAL_NAME)},
                            .remedy = "install it (pip install nvidia-cublas)"};
#undef KVCAL_NAME

struct Library {
  FoundLibrary found = find_library(kSearch, library_places({"/usr/local/cuda/lib64"}));
#define KVCAL_FUNCTION(name) decltype(::name)* name = found.function<decltype(::name)>(#name);
  KVCAL_FUNCTIONS(KVCAL_FUNCTION)
  KVCAL_FUNCTION(cublasLtMatmulAlgoConfigGetAttribute)  // may be missing
#undef KVCAL_FUNCTION
#undef KVCAL_FUNCTIONS
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

/// Sets an attribute of one of the library's descriptions.
template <class Set, class Handle, class Attribute, class Value>
void describe(Set* set, Handle handle, Attribute attribute, const Value& value) {
  library().check(set(handle, attribute, &value, sizeof(value)), "describing");
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
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      describe(lt.cublasLtMatmulDescSetAttribute, product, attribute, value);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (problem.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, problem.bias);
    }
    if (problem.is_fp8) {
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});  // these sums have fewer bits than float32
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
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      describe(lt.cublasLtMatmulPreferenceSetAttribute, handle, attribute, value);
    };
    // Sums in one sequence; split sums would depend on the number of rows.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    for (const auto side :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      set(side, kAlignment);
  }
  ~Preference() { library().cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  cublasLtMatmulPreference_t handle = nullptr;
};

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(Algorithm::data));
cublasLtMatmulAlgo_t own(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t own;
  std::memcpy(&own, algorithm.data.data(), sizeof(own));
  return own;
}

/// A value of an algorithm's configuration; nullopt where the library does not tell it.
template <class Value>
std::optional<Value> config_of(const cublasLtMatmulAlgo_t& algorithm,
                               cublasLtMatmulAlgoConfigAttributes_t attribute) {
  const Library& lt = library();
  Value value{};
  size_t written = 0;
  if (!lt.cublasLtMatmulAlgoConfigGetAttribute ||
      lt.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                              &written) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return value;
}

struct NamedId {
  uint32_t id;
  const char* name;
};
#define KVCAL_TILE(size) \
  { CUBLASLT_MATMUL_TILE_##size, #size }
/// Tiles of the kernels for many rows; others are told by their number.
constexpr NamedId kTiles[] = {KVCAL_TILE(64x64),   KVCAL_TILE(64x128),  KVCAL_TILE(128x64),
                              KVCAL_TILE(64x256),  KVCAL_TILE(128x128), KVCAL_TILE(256x64),
                              KVCAL_TILE(128x256), KVCAL_TILE(256x128), KVCAL_TILE(128x160),
                              KVCAL_TILE(192x128), KVCAL_TILE(128x192), KVCAL_TILE(128x96)};
#undef KVCAL_TILE
#define KVCAL_STAGES(size) \
  { CUBLASLT_MATMUL_STAGES_##size, #size }
constexpr NamedId kStages[] = {
    KVCAL_STAGES(32x3),    KVCAL_STAGES(32x4),    KVCAL_STAGES(32x5),    KVCAL_STAGES(32x6),
    KVCAL_STAGES(64x3),    KVCAL_STAGES(64x4),    KVCAL_STAGES(64x5),    KVCAL_STAGES(64x6),
    KVCAL_STAGES(128x3),   KVCAL_STAGES(128x4),   KVCAL_STAGES(128x5),   KVCAL_STAGES(128x6),
    KVCAL_STAGES(32xAUTO), KVCAL_STAGES(64xAUTO), KVCAL_STAGES(128xAUTO)};
#undef KVCAL_STAGES
#define KVCAL_CLUSTER(size) \
  { CUBLASLT_CLUSTER_SHAPE_##size, #size }
constexpr NamedId kClusters[] = {{CUBLASLT_CLUSTER_SHAPE_AUTO, "auto"},
                                 KVCAL_CLUSTER(1x1x1),
                                 KVCAL_CLUSTER(2x1x1),
                                 KVCAL_CLUSTER(1x2x1),
                                 KVCAL_CLUSTER(2x2x1),
                                 KVCAL_CLUSTER(4x1x1),
                                 KVCAL_CLUSTER(1x4x1),
                                 KVCAL_CLUSTER(4x2x1),
                                 KVCAL_CLUSTER(2x4x1)};
#undef KVCAL_CLUSTER

std::string name_in(std::span<const NamedId> names, uint32_t id) {
  const auto found = std::ranges::find(names, id, &NamedId::id);
  return found == names.end() ? "id " + std::to_string(id) : found->name;
}

std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  const auto id = config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID);
  std::string text = id ? std::to_string(*id) : "unknown";
  if (const auto tile = config_of<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID))
    text += ", tile " + name_in(kTiles, *tile);
  if (const auto stages = config_of<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID))
    text += ", stages " + name_in(kStages, *stages);
  if (const auto cluster = config_of<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID))
    text += ", cluster " + name_in(kClusters, *cluster);
  return text;
}

class CublasLt : public AlgorithmLibrary {
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

  /// With aligned rows, all rows start like the first, which starts like its buffer.
  bool fits(const MatmulProblem& problem) const override {
    return has_plain_scales(problem) && has_aligned_rows(problem) && is_aligned(problem);
  }
  int64_t rows() const override { return kChosenForRows; }
  bool runs_side_by_side() const override { return true; }

  std::vector<Algorithm> algorithms(const MatmulProblem& problem) override {
    const Description description(problem, problem.rows);
    const Preference preference;
    cublasLtMatmulHeuristicResult_t results[kAsked] = {};
    int found = 0;
    const auto status = library().cublasLtMatmulAlgoGetHeuristic(
        handle_, description.product, description.weight, description.x, description.out,
        description.out, preference.handle, kAsked, results, &found);
    std::vector<Algorithm> all;
    if (status != CUBLAS_STATUS_SUCCESS) return all;
    for (const auto& result : std::span(results, static_cast<size_t>(found))) {
      if (result.state != CUBLAS_STATUS_SUCCESS || !is_unsplit(result.algo)) continue;
      Algorithm& added = all.emplace_back();
      std::memcpy(added.data.data(), &result.algo, sizeof(result.algo));
      added.text = text_of(result.algo);
    }
    return all;
  }

  bool takes_rows(const Algorithm& algorithm, const MatmulProblem& problem) override {
    const Description description(problem, problem.rows);
    const cublasLtMatmulAlgo_t checked = own(algorithm);
    cublasLtMatmulHeuristicResult_t result{};
    const auto status = library().cublasLtMatmulAlgoCheck(
        handle_, description.product, description.weight, description.x, description.out,
        description.out, &checked, &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes;
  }

  void multiply(Stream& stream, const MatmulProblem& problem, const Algorithm& algorithm) override {
    void* const workspace = workspace_of(stream);
    const Description description(problem, problem.rows);
    const cublasLtMatmulAlgo_t used = own(algorithm);
    const float one = 1.0f, before = problem.accumulate ? 1.0f : 0.0f;
    library().check(
        library().cublasLtMatmul(handle_, description.product, &one, problem.weight,
                                 description.weight, problem.x, description.x, &before, problem.out,
                                 description.out, problem.out, description.out, &used, workspace,
                                 kWorkspaceBytes, stream.handle),
        "multiplying");
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
  /// Whether a sum is computed in one sequence. A library that cannot tell was asked for such
  /// algorithms.
  static bool is_unsplit(const cublasLtMatmulAlgo_t& algorithm) {
    if (!library().cublasLtMatmulAlgoConfigGetAttribute) return true;
    const auto splits = config_of<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    return splits && *splits <= 1;
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
};

}  // namespace

OpenedMatmul open_vendor_matmul(const MatmulOptions& options) {
  if (!library().found.handle) return {.matmul = nullptr, .problem = library().found.problem};
  return {.matmul = std::make_unique<ChosenMatmul>(std::make_unique<CublasLt>(), options),
          .problem = {}};
}

}  // namespace kvcal::gpu
