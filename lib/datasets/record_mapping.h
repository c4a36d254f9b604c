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

/// The way from an object of a file to a record. A field is a key, or a path of keys of objects in
/// objects, "body.messages".
struct RecordMapping {
  enum class Kind {
    kInputIds,
    kMessages,       ///< with the response behind them, where there is one
    kConversations,  ///< ShareGPT
    kText,
    kTemplates,
    kPair,
    kTranscript  ///< a text of turns that begin with "\n\nHuman: " and "\n\nAssistant: "
  };
  Kind kind = Kind::kText;
  std::string field = {};  ///< the only one; of a pair what the user says
  /// Of a pair: what follows the field in the user's turn, unless it is empty, the answer, and what
  /// the system says before. May be no fields.
  std::string input = {}, response = {}, system = {};
  /// Of templates: joined by separator; a part without content is left out.
  std::vector<FieldTemplate> parts = {};
  std::string separator = "\n";
};

/// The value at a path; nullptr where it is absent or null. A key with a dot in it goes before a
/// path.
const Json* find_value(const Json& object, std::string_view path);

/// Names of the fields that a record is made of, and of the objects that hold them.
std::vector<std::string> fields_of(const RecordMapping& mapping);

/// The mapping of columns that a user named; at least one is. Throws Error for those that do not go
/// together.
RecordMapping mapping_of(const RecordColumns& columns);

/// The record that an object holds. Throws Error naming field, found and expected.
Record map_record(const RecordMapping& mapping, const Json& object, std::string place);

}  // namespace kvcal
