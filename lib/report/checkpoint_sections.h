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
Section layers_section(const CheckpointReport& report);
Section weights_section(const CheckpointReport& report);
Section engines_section(const CheckpointReport& report);
Section sizes_section(const CheckpointReport& report);
Section facts_section(const CheckpointReport& report);

/// A paragraph.
Markup words(std::string_view text);
/// A table of two columns; nothing for no pairs.
Markup pairs_table(const std::string& id, const std::string& caption, const Pairs& pairs);

/// amax, or where it is not known what the largest scale can hold; NaN without either.
double reach_of(const CacheTensor& tensor, fp8::Format format);
/// scale * largest code of the largest scale; NaN without a scale.
double limit_of(const CacheTensor& tensor, fp8::Format format);

}  // namespace kvcal::report
