#include "engines/described_weights.h"

#include <sstream>

#include "stored/fp8_checkpoint.h"
#include "stored/quantization_config.h"
#include "stored/weights.h"

namespace kvcal {
namespace {

/// Whether a checkpoint may have codes at all; most that are verified have none.
bool may_hold_codes(const ModelDir& model_dir) {
  for (const SafetensorsFile& shard : model_dir.shards())
    for (const TensorView& tensor : shard.tensors())
      if (tensor.shape.rank() > 1 && !is_float(tensor.dtype)) return true;
  return false;
}

}  // namespace

DescribedWeights read_described_weights(const ModelDir& model_dir, const ModelConfig& config) {
  DescribedWeights described;
  try {
    QuantizationConfig source = read_quantization_config(model_dir);
    source.warnings = &described.warnings;
    read_module_schemes(source);
    if (!may_hold_codes(model_dir)) return described;
    const CheckpointQuantization quantization = read_checkpoint_quantization(model_dir, config);
    for (const std::string& name : quantization.undescribed) {
      std::ostringstream text;
      text << name << " (" << model_dir.tensor(name).dtype << ")";
      described.undescribed.push_back(text.str());
    }
    if (described.undescribed.empty())
      described.problems = Weights::account(model_dir, config, &quantization).problems;
  } catch (const UnknownKey& error) {
    described.unknown_key = error.message();
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {
    return described;
  }
  return described;
}

}  // namespace kvcal
