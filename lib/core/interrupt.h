#pragma once

namespace kvcal {

/// Requests all work to stop at its next safe point; safe to call from a signal handler.
void request_interrupt() noexcept;
/// Withdraws the request.
void clear_interrupt() noexcept;
bool is_interrupt_requested() noexcept;
/// A safe point: throws Interrupted after request_interrupt, Error where a file in use is known to
/// have changed (core/file_in_use.h), and std::bad_alloc where memory ran out (core/process.h).
/// Loops call it once a batch, so that outputs can be cleaned up.
void throw_if_interrupted();

}  // namespace kvcal
