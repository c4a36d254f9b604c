#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>

#include "family/architecture.h"

namespace kvcal {

/// A model family that a YAML file describes (docs/families.md): the fields of Architecture, or
/// those in which it differs from a built-in family. Owns the texts that its Architecture borrows.
class FamilyFile {
 public:
  /// Throws Error with the path, and line and column where the file is not a family's.
  explicit FamilyFile(const std::filesystem::path& path);
  /// The same of a text; name: of the file, for messages of its choice.
  FamilyFile(std::string_view text, const std::string& name);
  FamilyFile(const FamilyFile&) = delete;
  FamilyFile& operator=(const FamilyFile&) = delete;

  const Architecture& architecture() const { return architecture_; }
  /// As --family-file chooses it; borrows from this.
  FamilyChoice choice() const;

 private:
  void read(std::string_view text);

  std::deque<std::string> texts_;
  Architecture architecture_;
  std::string path_, sha256_;
};

/// A file of the family with every field, a comment and the choices of each; fields with their
/// default are commented out. FamilyFile reads the same family from it.
std::string family_template(const Architecture& family);

/// The start of a file: one that changes nothing in Llama, with every field commented out.
std::string empty_family_template();

}  // namespace kvcal
