#pragma once

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

/// The way from an object of a file to a record.
struct RecordMapping {
  enum class Kind { kInputIds, kMessages, kConversations, kText, kTemplates, kPair };
  Kind kind = Kind::kText;
  std::string field = {};  ///< the only one; of a pair what the user says
  /// Of a pair: what follows the field in the user's turn, unless it is empty, and the answer. May
  /// be no fields.
  std::string input = {}, response = {};
  /// Of templates: joined by separator; a part without content is left out.
  std::vector<FieldTemplate> parts = {};
  std::string separator = "\n";
};

/// Names of the fields that a record is made of.
std::vector<std::string> fields_of(const RecordMapping& mapping);

/// The mapping of columns that a user named; at least one is. Throws Error for those that do not go
/// together.
RecordMapping mapping_of(const RecordColumns& columns);

/// The record that an object holds. Throws Error naming field, found and expected.
Record map_record(const RecordMapping& mapping, const Json& object, std::string place);

}  // namespace kvcal
