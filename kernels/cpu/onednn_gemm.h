#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/scratch.h"

namespace kvcal::cpu {

/// oneDNN's engine, shared by the threads, and each thread's stream and scratch memory.
struct DnnSession {
  explicit DnnSession(int num_threads) : scratchpads(static_cast<size_t>(num_threads)) {
    for (int i = 0; i < num_threads; ++i) streams.emplace_back(engine);
  }
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;
  std::vector<Scratch> scratchpads;
};

/// oneDNN's name of its matmul of type, empty where it has none.
std::string dnn_implementation(const DnnSession& session, ComputeType type);

/// oneDNN's multiplications for a few fixed heights. Each is compared with one of them here, and is
/// not used where oneDNN sums in another order. Throws Error where oneDNN cannot multiply the
/// shape.
std::unique_ptr<Gemm> make_dnn_gemm(DnnSession& session, const PanelShape& shape);
constexpr int64_t kDnnTallest = 128;

}  // namespace kvcal::cpu
