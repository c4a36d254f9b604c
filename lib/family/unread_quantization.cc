#include "family/unread_quantization.h"

#include <array>

namespace kvcal {
namespace {

struct UnreadMethod {
  std::string_view method, what;
};

// Names as transformers 5.24, vLLM 0.32 and SGLang 0.5.23 know them.
constexpr std::array<UnreadMethod, 26> kMethods{{
    {"aqlm", "AQLM, codebooks of several vectors a weight"},
    {"bitnet", "BitNet, ternary weights"},
    {"eetq", "EETQ, INT8 in the order of a GPU kernel"},
    {"exl2", "EXL2, of ExLlamaV2"},
    {"exl3", "EXL3, of ExLlamaV3"},
    {"fouroversix", "Four Over Six, NVFP4 with scales of two ranges"},
    {"fp_quant", "FP-Quant, 4-bit floats behind a rotation"},
    {"ggml", "GGML's blocks"},
    {"gguf", "GGUF, of llama.cpp"},
    {"higgs", "HIGGS, vectors of a grid behind a rotation"},
    {"hqq", "HQQ, packed as its kernels want it"},
    {"marlin", "GPTQ in the order of the Marlin kernel"},
    {"metal", "MLX's codes for transformers on Metal"},
    {"mlx", "MLX's codes"},
    {"mxfp8", "MXFP8 as MiniMax names it"},
    {"paroquant", "ParoQuant, 4 bits behind rotations of pairs"},
    {"petit_nvfp4", "NVFP4 in the order of the Petit kernel"},
    {"qqq", "QQQ, 4-bit weights in the order of a GPU kernel"},
    {"quanto", "Quanto, of optimum"},
    {"quip", "QuIP#, vectors of a lattice behind a rotation"},
    {"sinq", "SINQ, with scales of rows and columns"},
    {"spqr", "SpQR, with outliers in a sparse matrix"},
    {"torchao", "torchao's tensor subclasses"},
    {"vptq", "VPTQ, codebooks of vectors"},
    {"w4afp8", "INT4 weights for FP8 products, of DeepSeek's TensorRT-LLM"},
    {"w8a8_int8", "INT8 with scales of rows, of SGLang"},
}};

}  // namespace

std::string about_unread(std::string_view method) {
  for (const UnreadMethod& one : kMethods)
    if (one.method == method)
      return ": " + std::string(one.what) + "; " + std::string(kStartElsewhere);
  return "";
}

}  // namespace kvcal
