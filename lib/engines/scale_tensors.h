#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_dir.h"
#include "family/model_config.h"

namespace kvcal {

/// A tensor that looks like a scale of K, V, queries or probabilities, or like their zero points,
/// whoever wrote it and wherever it stands.
struct ScaleTensor {
  std::string name;
  int64_t layer = -1;  ///< of the model; -1: it belongs to none of its attention layers
  std::string rest;    ///< what follows the attention module's name; the whole name for layer -1
  std::vector<int64_t> shape = {};
  std::vector<float> values =
      {};                 ///< in float32; empty where there are none, or the dtype is no number
  std::string file = {};  ///< name of the shard
};

/// Whether a name, or the part of it below an attention module, is that of such a tensor in any
/// tool's words. Outside of attention modules other scales may have it, too.
bool is_attention_scale(std::string_view name);

/// All of a checkpoint, by shard and in each sorted by name, as engines' loaders meet them.
/// Weights' and inputs' scales of quantized Linears are not among them.
std::vector<ScaleTensor> find_scale_tensors(const ModelDir& model_dir, const ModelConfig& config);

/// Ends of names of scales that belong to quantized Linears, those that the checkpoint has.
std::vector<std::string> linear_scale_endings(const ModelDir& model_dir);

/// The scales of the draft layer, which config has, in the same order.
std::vector<ScaleTensor> draft_scale_tensors(const ModelDir& model_dir, const ModelConfig& config);

/// What follows the name of the attention module, or "layer" and what follows the layer's name; the
/// whole name where it has no layer.
std::string name_in_layer(const ScaleTensor& tensor);

/// name with the number of its layer replaced by N, for messages about several layers.
std::string general_name(const ScaleTensor& tensor, const ModelConfig& config);

/// Names of tensors that the model of a checkpoint has no place for, with N for the number of their
/// layer, each once, sorted: neither weights nor biases, nor tensors that loaders skip, nor those
/// of quantized Linears where has_quantized_weights, nor any of scales. Tensors of experts have
/// many names and are none.
std::vector<std::string> foreign_tensors(const ModelDir& model_dir, const ModelConfig& config,
                                         const std::vector<ScaleTensor>& scales,
                                         bool has_quantized_weights);

}  // namespace kvcal
