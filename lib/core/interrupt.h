#pragma once

namespace kvcal {

/// Asks all work to stop at its next safe point; safe to call from a signal handler.
void request_interrupt() noexcept;
/// Takes the request back.
void clear_interrupt() noexcept;
/// Throws Interrupted if a stop was asked for. Loops call it once a batch, so that outputs can
/// clean up.
void throw_if_interrupted();

}  // namespace kvcal
