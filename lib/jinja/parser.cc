#include <array>
#include <set>

#include "jinja/expression_parser.h"

namespace kvcal::jinja {
namespace {

/// The grammar of statements. Source: Jinja2 3.1, parser.py; transformers' AssistantTracker for
/// generation.
class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void parse_all() {
    enter_scope(tree_.body);
    static_cast<std::vector<Statement*>&>(tree_.body) = parse_block({});
    check_known();
    settle_late_names();
  }

 private:
  using EndNames = std::vector<std::string_view>;

  /// Statements up to a tag whose name is in ends, which is left as the current token. No ends: the
  /// whole template.
  Block parse_block(const EndNames& ends) {
    const Nesting nesting(*this);
    Block block;
    while (!token().is(TokenType::kEnd)) {
      const int line = token().line;
      if (token().is(TokenType::kData)) {
        Statement* text = add(block, StatementKind::kText, line);
        text->text = take().text;
      } else if (token().is(TokenType::kVariableBegin)) {
        take();
        Statement* print = add(block, StatementKind::kPrint, line);
        print->value = parse_tuple({});
        expect(TokenType::kVariableEnd, "'}}'");
      } else {
        take();
        for (const std::string_view end : ends)
          if (token().is_name(end)) return block;
        parse_statement(block);
        expect(TokenType::kBlockEnd, "'%}'");
      }
    }
    if (!ends.empty()) stop("the template ends inside a block, expected " + join(ends, " or "));
    return block;
  }

  /// The body behind a tag: "%}" and statements, and with takes_end the end tag's name.
  Block parse_body(const EndNames& ends, bool takes_end = true) {
    skip_operator(":");
    expect(TokenType::kBlockEnd, "'%}'");
    Block body = parse_block(ends);
    if (takes_end) take();
    return body;
  }

  /// Parses block, the body of a tag that is a scope of its own, in which targets have values.
  void parse_scope(Block& block, const EndNames& ends, const std::vector<int>& known_names = {},
                   bool takes_end = true) {
    const size_t known = num_unknown();
    enter_scope(block);
    scope_->own.insert(known_names.begin(), known_names.end());
    static_cast<std::vector<Statement*>&>(block) = parse_body(ends, takes_end);
    leave_scope();
    require_known(known);
  }

  /// Parses with parse what is no part of the scope around it, and of none inside.
  template <class Parse>
  void parse_apart(const Parse& parse) {
    const size_t known = num_unknown();
    Block nowhere;
    enter_scope(nowhere);
    parse();
    scope_->late.clear();
    leave_scope();
    require_known(known);
  }

  static void add_names(const Expression* target, std::vector<int>& names) {
    for_each_target(target, [&](const Expression* name) { names.push_back(name->name); });
  }

  Statement* add(Block& block, StatementKind kind, int line) {
    check_nodes();
    tree_.statements.push_back(std::make_unique<Statement>());
    Statement* statement = tree_.statements.back().get();
    statement->kind = kind;
    statement->line = line;
    block.push_back(statement);
    return statement;
  }

  void parse_statement(Block& block) {
    using ParseStatement = void (Parser::*)(Block&, int);
    constexpr std::array<std::pair<std::string_view, ParseStatement>, 11> kStatements{
        {{"for", &Parser::parse_for},
         {"if", &Parser::parse_if},
         {"set", &Parser::parse_set},
         {"with", &Parser::parse_with},
         {"print", &Parser::parse_print},
         {"macro", &Parser::parse_macro},
         {"call", &Parser::parse_call_block},
         {"filter", &Parser::parse_filter_block},
         {"break", &Parser::parse_exit<StatementKind::kBreak>},
         {"continue", &Parser::parse_exit<StatementKind::kContinue>},
         {"generation", &Parser::parse_generation}}};
    const Token& name = expect(TokenType::kName, "a tag's name");
    for (const auto& [known, parse] : kStatements)
      if (name.text == known) return (this->*parse)(block, name.line);
    for (const std::string_view refused :
         {"include", "import", "from", "extends", "block", "autoescape"})
      if (name.text == refused)
        stop("'" + std::string(refused) + "' is not supported in chat templates", name.line);
    stop("unknown tag '" + std::string(name.text) + "'", name.line);
  }

  void parse_for(Block& block, int line) {
    Statement* loop = add(block, StatementKind::kFor, line);
    ++num_loops_;
    loop->target = parse_target(false);
    require_not_loop(loop->target);
    if (!skip_name("in")) stop("found " + described(token()) + ", expected 'in'");
    loop->value = parse_tuple({.has_conditional = false});
    if (skip_name("if")) parse_apart([&] { loop->condition = parse_expression(); });
    if (token().is_name("recursive")) stop("recursive loops are not supported in chat templates");
    ++num_breakable_;
    std::vector<int> names{kLoopName};
    add_names(loop->target, names);
    parse_scope(loop->body, {"endfor", "else"}, names, false);
    --num_breakable_;
    if (take().text == "else") parse_scope(loop->otherwise, {"endfor"});
    --num_loops_;
  }

  /// `loop` belongs to the loop itself.
  void require_not_loop(const Expression* target) const {
    for_each_target(target, [&](const Expression* name) {
      if (num_loops_ > 0 && name->kind == ExpressionKind::kName && name->name == kLoopName)
        stop("'loop' cannot be assigned to in a for loop", name->line);
    });
  }

  void parse_if(Block& block, int line) {
    Statement* statement = add(block, StatementKind::kIf, line);
    const size_t known = num_unknown();
    ++scope_->branches;
    while (true) {
      Branch branch{.condition = parse_tuple({.has_conditional = false}), .body = {}};
      branch.body = parse_body({"elif", "else", "endif"}, false);
      statement->branches.push_back(std::move(branch));
      const std::string_view end = take().text;
      if (end == "elif") continue;
      if (end == "else") statement->body = parse_body({"endif"});
      --scope_->branches;
      return forget_unknown(known);
    }
  }

  void parse_set(Block& block, int line) {
    Statement* set = add(block, StatementKind::kSet, line);
    set->target = parse_target(true);
    require_not_loop(set->target);
    if (skip_operator("=")) {
      set->value = parse_tuple({});
      return note_set(set->target);
    }
    set->kind = StatementKind::kSetBlock;
    parse_apart([&] { set->value = parse_filters(nullptr); });
    parse_scope(set->body, {"endset"});
    note_set(set->target);
  }

  void note_set(const Expression* target) {
    for_each_target(target, [&](const Expression* name) {
      note_own_name(name->name, name->kind == ExpressionKind::kName);
    });
  }

  void parse_with(Block& block, int line) {
    Statement* with = add(block, StatementKind::kWith, line);
    while (!token().is(TokenType::kBlockEnd)) {
      if (!with->assignments.empty()) expect_operator(",");
      Expression* target = parse_target(false);
      expect_operator("=");
      with->assignments.emplace_back(target, parse_expression());
    }
    std::vector<int> names;
    for (const auto& [target, value] : with->assignments) add_names(target, names);
    parse_scope(with->body, {"endwith"}, names);
  }

  void parse_print(Block& block, int line) {
    for (bool is_first = true; !token().is(TokenType::kBlockEnd); is_first = false) {
      if (!is_first) expect_operator(",");
      add(block, StatementKind::kPrint, line)->value = parse_expression();
    }
  }

  void parse_signature(Statement* owner) {
    expect_operator("(");
    std::set<std::string_view> names;
    while (!token().is_operator(")")) {
      if (!owner->parameters.empty()) expect_operator(",");
      Parameter parameter{.text = parse_name_target()};
      parameter.name = number_of_name(parameter.text);
      add_name(names, parameter.text, "parameter");
      if (skip_operator("="))
        parameter.fallback = parse_expression();
      else if (!owner->parameters.empty() && owner->parameters.back().fallback != nullptr)
        stop("a parameter without a default follows one with a default");
      owner->parameters.push_back(parameter);
    }
    expect_operator(")");
  }

  void parse_macro(Block& block, int line) {
    Statement* macro = add(block, StatementKind::kMacro, line);
    macro->text = parse_name_target();
    macro->name = number_of_name(macro->text);
    note_own_name(macro->name, true);
    parse_apart([&] { parse_signature(macro); });
    parse_function(macro, "endmacro");
  }

  void parse_call_block(Block& block, int line) {
    Statement* call = add(block, StatementKind::kCallBlock, line);
    if (token().is_operator("(")) parse_signature(call);
    call->value = parse_expression();
    if (call->value->kind != ExpressionKind::kCall) stop("a call block needs a call", line);
    parse_function(call, "endcall");
  }

  /// The body of a macro or call block, which breaks no loop around it.
  void parse_function(Statement* function, std::string_view end) {
    const int around = std::exchange(num_breakable_, 0);
    functions_.push_back(function);
    std::vector<int> names;
    for (const Parameter& parameter : function->parameters) names.push_back(parameter.name);
    parse_scope(function->body, {end}, names);
    functions_.pop_back();
    num_breakable_ = around;
    for (const Parameter& parameter : function->parameters)
      if (parameter.name == kCallerName && parameter.fallback == nullptr && function->reads_caller)
        stop("a parameter named 'caller' needs a default", function->line);
  }

  void parse_filter_block(Block& block, int line) {
    Statement* filter = add(block, StatementKind::kFilterBlock, line);
    parse_apart([&] { filter->value = parse_filters(nullptr, true); });
    parse_scope(filter->body, {"endfilter"});
  }

  template <StatementKind kind>
  void parse_exit(Block& block, int line) {
    if (num_breakable_ == 0)
      stop(std::string(kind == StatementKind::kBreak ? "break" : "continue") + " outside of a loop",
           line);
    add(block, kind, line);
  }

  /// The marks of assistant text, which only training reads: a call block whose call returns its
  /// body.
  void parse_generation(Block& block, int line) {
    Statement* generation = add(block, StatementKind::kCallBlock, line);
    parse_function(generation, "endgeneration");
  }
};

}  // namespace

SyntaxTree parse(std::string_view source) {
  SyntaxTree tree;
  tree.tokens = tokenize(source);
  Parser(tree).parse_all();
  return tree;
}

}  // namespace kvcal::jinja
