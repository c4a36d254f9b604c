#pragma once

#include "report/checkpoint_report.h"
#include "report/page.h"

/// The sections of a checkpoint's page. Each says in words what is missing where there is nothing
/// to show.
namespace kvcal::report {

Section summary_section(const CheckpointReport& report);
Section scales_section(const CheckpointReport& report);
Section heads_section(const CheckpointReport& report);
Section magnitudes_section(const CheckpointReport& report);
Section damage_section(const CheckpointReport& report);
Section convergence_section(const CheckpointReport& report);
Section positions_section(const CheckpointReport& report);
Section layers_section(const CheckpointReport& report);
Section weights_section(const CheckpointReport& report);
Section engines_section(const CheckpointReport& report);
Section sizes_section(const CheckpointReport& report);
Section about_section(const CheckpointReport& report);

}  // namespace kvcal::report
