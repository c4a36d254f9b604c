#include "run/planned_run.h"

#include "core/byte_size.h"

namespace kvcal {

void plan_run(CalibrateRequest& request, PlannedRun& plan, Diagnostics& diagnostics) {
  OutputOptions output = request.output;
  if (!output.formats.empty()) plan.formats.emplace(output);  // wrong names are told first
  plan.subject.emplace(make_subject(read_recipe(request.recipe), request.recipe, request.model,
                                    diagnostics, request.family, !request.no_mtp));
  CalibrationSubject& subject = *plan.subject;
  if (!request.skip_layers.empty())
    in_context("--kv-cache-dtype-skip-layers", [&] { subject.leave_out(request.skip_layers); });
  settle_dataset(request, subject, diagnostics);
  plan.inputs = settle_inputs(request.device, subject.quantization);
  for (const std::string& warning : subject.quantization.warnings)
    diagnostics.warn(request.model + ": " + warning);
  settle_formats(output, subject.model_dir,
                 {.kept = subject.kept_quantization(),
                  .weights = &subject.quantization,
                  .makes_weights = subject.plan.quantizes_weights()},
                 diagnostics);
  plan.formats.emplace(output);
  subject.settle_output(plan.formats->names(), diagnostics);
  if (output.scales_only && subject.output && subject.output->recoded.has_coded())
    diagnostics.note(
        "the overlay is of weights in another form than the checkpoint's: kvcal apply "
        "gives them that form, and copied into the folder it would not fit");
  check_request(request, subject, *plan.formats);
}

LayerwiseOptions layerwise_options(const CalibrateRequest& request, const Backend& backend,
                                   const ModelConfig& config, const fs::path& scratch) {
  LayerwiseOptions layerwise{.compute_type = compute_type_of(request.device, backend, config),
                             .batch_tokens = request.batch_tokens,
                             .scratch_folder = scratch};
  if (!request.memory_limit.empty())
    layerwise.memory_limit =
        in_context("--memory-limit", [&] { return parse_byte_size(request.memory_limit); });
  return layerwise;
}

}  // namespace kvcal
