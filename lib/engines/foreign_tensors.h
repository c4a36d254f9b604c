#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "engines/scale_tensors.h"
#include "family/model_config.h"

namespace kvcal {

/// Names of tensors that the model of a checkpoint has no place for, with N for the number of their
/// layer, each once, sorted: neither weights nor biases, nor tensors that loaders skip, nor those
/// of quantized Linears where has_quantized_weights, nor any of scales. Tensors of experts have
/// many names and are none.
std::vector<std::string> foreign_tensors(const ModelDir& model_dir, const ModelConfig& config,
                                         const std::vector<ScaleTensor>& scales,
                                         bool has_quantized_weights);

}  // namespace kvcal
