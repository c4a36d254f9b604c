#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace kvcal::cpu {

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

}  // namespace kvcal::cpu
