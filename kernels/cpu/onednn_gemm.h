#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/gemm.h"
#ifndef KVCAL_NO_ONEDNN
#include <oneapi/dnnl/dnnl.hpp>
#endif
#include "kernels/cpu/scratch.h"

namespace kvcal::cpu {

#ifndef KVCAL_NO_ONEDNN
/// Describes a matmul for oneDNN 2 or 3, whose interfaces differ. Throws dnnl::error where no
/// implementation exists.
inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine,
                                                    const dnnl::memory::desc& x,
                                                    const dnnl::memory::desc& weight,
                                                    const dnnl::memory::desc& out) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, weight, out, attributes};
#else
  return {dnnl::matmul::desc(x, weight, out), attributes, engine};
#endif
}
#endif

/// oneDNN's engine, shared by the threads, and each thread's stream and scratch memory.
struct DnnSession {
#ifdef KVCAL_NO_ONEDNN
  explicit DnnSession(int) {}
#else
  explicit DnnSession(int num_threads) : scratchpads(static_cast<size_t>(num_threads)) {
    for (int i = 0; i < num_threads; ++i) streams.emplace_back(engine);
  }
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;
  std::vector<Scratch> scratchpads;
#endif
};

/// oneDNN's name of its matmul for type; empty where it has none, and in builds without it.
std::string dnn_implementation(const DnnSession& session, ComputeType type);

/// oneDNN's products for a few fixed heights. This function compares the heights with each other
/// and drops those with another order of summation. Throws Error where oneDNN does not support the
/// shape.
std::unique_ptr<Gemm> make_dnn_gemm(DnnSession& session, const PanelShape& shape);
constexpr int64_t kDnnTallest = 128;

}  // namespace kvcal::cpu
