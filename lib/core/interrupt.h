#pragma once

namespace kvcal {

/// Asks all work to stop at its next safe point; safe to call from a signal handler.
void request_interrupt() noexcept;
/// Takes the request back.
void clear_interrupt() noexcept;
bool is_interrupt_requested() noexcept;
/// A safe point: throws Interrupted if a stop was asked for, and Error if a file in use was seen to
/// change (core/file_in_use.h). Loops call it once a batch, so that outputs can clean up.
void throw_if_interrupted();

}  // namespace kvcal
