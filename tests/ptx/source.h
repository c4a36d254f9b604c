#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Structure of a module's PTX text.
namespace kvcal::ptx {

/// A variable or a parameter: ".shared .align 16 .b8 tiles[18432]".
struct Declaration {
  std::string space;  ///< ".shared"
  std::string type;   ///< ".b8"
  std::string name;
  std::string initial;  ///< what stands behind "="
  uint32_t alignment = 1, element_bytes = 1;
  uint64_t count = 1;
  bool is_extern = false;
  uint64_t bytes() const { return element_bytes * count; }
};
/// Throws Error with the text where it is none.
Declaration parse_declaration(std::string_view text);

struct Statement {
  enum class Kind { kOpen, kClose, kLabel, kDirective, kInstruction };
  Kind kind = Kind::kInstruction;
  std::string_view text;  ///< without the semicolon or the colon
  uint32_t line = 0;      ///< of the module, from 1
};

/// A kernel of the text; views into it.
struct Entry {
  std::string_view name, parameters, attributes, body;
  uint32_t line = 0;  ///< of the body's begin
};

/// Statements of a kernel's body, comments left out.
std::vector<Statement> statements_of(const Entry& entry);

struct ModuleText {
  std::vector<Entry> entries;
  std::vector<Declaration> variables;
};
/// Views into text, which must outlive the result. Throws Error where the text is cut off.
ModuleText parse_module(std::string_view text);

std::string_view trimmed(std::string_view text);
/// Pieces between separators, trimmed; none of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace kvcal::ptx
