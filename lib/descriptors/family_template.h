#pragma once

#include <string>

#include "family/architecture.h"

namespace kvcal {

/// A file of the family with every field, a comment and the choices of each; fields with their
/// default are commented out. FamilyFile reads the same family from it.
std::string family_template(const Architecture& family);

/// The start of a file: one that changes nothing in Llama, with every field commented out.
std::string empty_family_template();

}  // namespace kvcal
