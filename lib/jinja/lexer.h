#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace kvcal::jinja {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kEnd,
  kString,
  kName,
  kInteger,
  kFloat,
  kOperator,
};

/// text is the name, the operator, the literal's value or the template's data; it belongs to
/// TokenList.
struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string_view text;

  bool is(TokenType wanted) const { return type == wanted; }
  bool is_operator(std::string_view symbol) const {
    return type == TokenType::kOperator && text == symbol;
  }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// Prints a token as messages name it.
std::string described(const Token& token);

/// A template cut into tokens. Comments, raw markers and whitespace inside tags are gone;
/// whitespace control (-, +, trim_blocks, lstrip_blocks, the last newline) has been applied. Ends
/// with a kEnd token.
struct TokenList {
  std::deque<std::string> texts;  ///< the source with newlines made \n, then unescaped literals
  std::vector<Token> tokens;
};

/// Throws Error with the line. Source of the rules: Jinja2 3.1, lexer.py.
TokenList tokenize(std::string_view source);

}  // namespace kvcal::jinja
