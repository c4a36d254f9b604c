#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "datasets/dataset.h"

namespace kvcal {

/// Text with {field} in it, to be filled from a record; "{{" and "}}" stand for braces. Nothing
/// else is read.
class FieldTemplate {
 public:
  /// Throws Error for a brace without its partner or a template without a field.
  explicit FieldTemplate(std::string_view source);

  /// The text; nothing where every field is empty or null. Throws Error for a field that the object
  /// lacks or that is no string.
  std::optional<std::string> fill(const Json& object) const;
  /// Names of its fields, in their order.
  std::vector<std::string> fields() const;

 private:
  struct Piece {
    std::string literal, field;  ///< the literal comes first; the last piece may have no field
  };
  std::vector<Piece> pieces_;
};

/// The way from a record of a known data set to one of ours.
struct RecordMapping {
  enum class Kind { kInputIds, kMessages, kConversations, kText };
  Kind kind = Kind::kText;
  std::string field;  ///< of the three kinds that are not text
  std::vector<FieldTemplate>
      parts;  ///< of text: joined by separator; a part without content is left out
  std::string separator = "\n";
};

/// A known data set and its local copy. The grammar is in datasets/README.md, "Descriptors".
struct DatasetDescriptor {
  std::string name, source, licence;
  std::string configuration;  ///< empty where the data set has only one
  std::vector<std::string> splits;
  std::string split;                 ///< the one that is read
  std::filesystem::path local_copy;  ///< absolute or relative to the working folder
  /// Patterns of files in the hub's repository `source`: first those of the split, then others that
  /// are fetched with them. Empty: none are known.
  std::vector<std::string> hub_files;
  RecordMapping mapping;
};

/// Reads a descriptor, a file or a name (datasets/named_dataset.h); overrides stand in for its
/// split and local copy. The copy of a name is that of the hub's cache, where none lies in the
/// working folder and the cache has it. Throws Error with file and line for an unknown, repeated or
/// missing key and a value of the wrong kind.
DatasetDescriptor read_descriptor(const std::filesystem::path& path,
                                  const DatasetOverrides& overrides);

/// Names of the fields that a record is made of.
std::vector<std::string> fields_of(const RecordMapping& mapping);

/// The record that an object of the local copy holds. Throws Error naming field, found and
/// expected.
Record map_record(const RecordMapping& mapping, const Json& object, std::string place);

}  // namespace kvcal
