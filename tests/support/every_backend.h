#pragma once

#include "support/backends.h"

namespace kvcal::test {

/// Runs body(backend) for the reference, unless only devices are asked for, and for every backend
/// that for_each_backend runs: where something else than the reference judges, or a property is
/// every backend's.
template <class Body>
void for_every_backend(const Body& body) {
  if (!only_devices()) body(*make_backend("reference"));
  for_each_backend(body);
}

}  // namespace kvcal::test
