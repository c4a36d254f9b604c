#include <string>

#include "core/error.h"
#include "jinja/calls.h"
#include "jinja/symbols.h"

namespace kvcal::jinja {
namespace {

/// The position of the walk. Source: Jinja2 3.1, compiler.py, Frame.
struct Frame {
  const Symbols* symbols = nullptr;
  bool is_conditional = false;  ///< unknown filters and tests are reported only when reached
  bool is_in_loop = false;

  Frame inside(const Symbols& inner) const { return {&inner, false, is_in_loop}; }
  Frame conditional() const { return {symbols, true, is_in_loop}; }
};

class Resolver {
 public:
  explicit Resolver(SyntaxTree& tree) : tree_(tree) {}

  void run() {
    FunctionScope function{.work = &work_};
    if (undeclared(function, tree_.body, {"self"}).contains("self"))
      fail("line 1: 'self' is not supported in chat templates");
    Symbols root(function, nullptr, 0);
    root.declare(tree_.body);
    tree_.loads = root.loads();
    resolve(tree_.body, {&root});
    tree_.num_slots = function.num_slots;
  }

 private:
  static Slot slot_of(const Frame& frame, std::string_view name, int line) {
    const std::optional<Variable> variable = frame.symbols->find(name);
    // Jinja2 fails so, too: the arguments of a set block's filter are no part of any scope.
    if (!variable) fail("line ", line, ": '", name, "' is not known in this scope");
    return {frame.symbols->function().depth - variable->function->depth, variable->index};
  }

  static void collect_slots(const Frame& frame, Expression* target, std::vector<Slot>& slots) {
    for_each_target(target, [&](Expression* name) {
      const Slot slot = slot_of(frame, name->text, name->line);
      if (name->kind == ExpressionKind::kAttributeTarget)
        name->slot = slot;
      else
        slots.push_back(slot);
    });
  }

  void resolve(Expression* expression, Frame frame) {
    if (expression == nullptr) return;
    switch (expression->kind) {
      case ExpressionKind::kName:
        expression->slot = slot_of(frame, expression->text, expression->line);
        return;
      case ExpressionKind::kConditional:
        frame = frame.conditional();
        break;
      case ExpressionKind::kFilter:
        if (!frame.is_conditional && find_filter(expression->text) == nullptr)
          fail("line ", expression->line, ": no filter named '", expression->text, "'");
        break;
      case ExpressionKind::kTest:
        if (!frame.is_conditional && find_test(expression->text) == nullptr)
          fail("line ", expression->line, ": no test named '", expression->text, "'");
        break;
      default:
        break;
    }
    for (Expression* item : expression->items) resolve(item, frame);
    for_each_argument(expression->call, [&](Expression* argument) { resolve(argument, frame); });
  }

  void resolve(const Block& block, const Frame& frame) {
    for (Statement* statement : block) resolve(statement, frame);
  }

  void resolve(Statement* statement, const Frame& frame) {
    switch (statement->kind) {
      case StatementKind::kText:
        return;
      case StatementKind::kPrint:
        return resolve(statement->value, frame);
      case StatementKind::kIf:
        for (const Branch& branch : statement->branches) {
          resolve(branch.condition, frame.conditional());
          resolve(branch.body, frame.conditional());
        }
        return resolve(statement->body, frame.conditional());
      case StatementKind::kFor:
        return resolve_for(statement, frame);
      case StatementKind::kSet:
        collect_slots(frame, statement->target, statement->target_slots);
        return resolve(statement->value, frame);
      case StatementKind::kSetBlock:
        return resolve_set_block(statement, frame);
      case StatementKind::kWith:
        return resolve_with(statement, frame);
      case StatementKind::kMacro:
        statement->target_slots = {slot_of(frame, statement->text, statement->line)};
        return resolve_function(statement, frame);
      case StatementKind::kCallBlock:
        resolve_function(statement, frame);
        return resolve(statement->value, frame);
      case StatementKind::kFilterBlock:
        return resolve_filter_block(statement, frame);
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        if (!frame.is_in_loop)
          fail("line ", statement->line, ": ",
               statement->kind == StatementKind::kBreak ? "break" : "continue",
               " outside of a loop");
    }
  }

  /// Whether a loop or assignment below binds the name `loop`, which belongs to the loop itself.
  static bool binds_loop(const Expression* target) {
    bool binds = false;
    for_each_target(target, [&](const Expression* name) {
      binds |= name->kind == ExpressionKind::kName && name->text == "loop";
    });
    return binds;
  }
  static bool binds_loop(const FunctionScope& function, const Block& block) {
    for (const Statement* statement : block)
      if (binds_loop(function, statement)) return true;
    return false;
  }
  static bool binds_loop(const FunctionScope& function, const Statement* statement) {
    function.charge(1);
    if (binds_loop(statement->target)) return true;
    for (const Branch& branch : statement->branches)
      if (binds_loop(function, branch.body)) return true;
    return binds_loop(function, statement->body) || binds_loop(function, statement->otherwise);
  }

  void resolve_for(Statement* loop, const Frame& frame) {
    const int level = frame.symbols->level() + 1;
    FunctionScope& function = frame.symbols->function();
    if (binds_loop(function, loop))
      fail("line ", loop->line, ": 'loop' cannot be assigned to in a for loop");

    Symbols inner(function, frame.symbols, level);
    const bool names_loop = undeclared(function, loop->body, {"loop"}).contains("loop");
    if (names_loop) inner.declare_parameter("loop");
    inner.declare_target(loop->target, true);
    inner.declare(loop->body);

    // The condition runs for the next item while the body still works on this one, so its variables
    // are its own; no level is negative but theirs.
    if (loop->condition != nullptr) {
      Symbols condition(function, frame.symbols, --num_conditions_);
      condition.declare_target(loop->target, true);
      condition.declare(loop->condition);
      collect_slots(frame.inside(condition), loop->target, loop->condition_slots);
      resolve(loop->condition, frame.inside(condition));
      loop->condition_loads = condition.loads();
    }
    resolve(loop->value, frame);
    Frame body = frame.inside(inner);
    body.is_in_loop = true;
    if (names_loop) loop->loop_slot = slot_of(body, "loop", loop->line).index;
    collect_slots(body, loop->target, loop->target_slots);
    loop->loads = inner.loads();
    resolve(loop->body, body);

    Symbols otherwise(function, frame.symbols, level);
    otherwise.declare(loop->otherwise);
    loop->otherwise_loads = otherwise.loads();
    resolve(loop->otherwise, frame.inside(otherwise));
  }

  void resolve_with(Statement* with, const Frame& frame) {
    Symbols inner(frame.symbols->function(), frame.symbols, frame.symbols->level() + 1);
    for (const auto& [target, value] : with->assignments) inner.declare_target(target, true);
    inner.declare(with->body);
    for (const auto& [target, value] : with->assignments) {
      collect_slots(frame.inside(inner), target, with->target_slots);
      resolve(value, frame);
    }
    with->loads = inner.loads();
    resolve(with->body, frame.inside(inner));
  }

  void resolve_set_block(Statement* set, const Frame& frame) {
    Symbols inner(frame.symbols->function(), frame.symbols, frame.symbols->level() + 1);
    inner.declare(set->body);
    set->loads = inner.loads();
    resolve(set->body, frame.inside(inner));
    collect_slots(frame, set->target, set->target_slots);
    resolve(set->value, frame.inside(inner));
  }

  void resolve_filter_block(Statement* filter, const Frame& frame) {
    Symbols inner(frame.symbols->function(), frame.symbols, frame.symbols->level() + 1);
    inner.declare(filter->body);
    inner.declare(filter->value);
    filter->loads = inner.loads();
    resolve(filter->body, frame.inside(inner));
    resolve(filter->value, frame.inside(inner));
  }

  /// A macro or call block: a function with slots of its own.
  void resolve_function(Statement* owner, const Frame& frame) {
    FunctionScope function{.depth = frame.symbols->function().depth + 1, .work = &work_};
    Symbols inner(function, frame.symbols, frame.symbols->level() + 1);
    const auto declare_all = [&] {
      for (const Parameter& parameter : owner->parameters) inner.declare_parameter(parameter.name);
      for (const Parameter& parameter : owner->parameters) inner.declare(parameter.fallback);
      inner.declare(owner->body);
    };
    declare_all();
    declare_special(owner, inner);
    declare_all();
    const Frame body{&inner};
    for (Parameter& parameter : owner->parameters) {
      parameter.index = slot_of(body, parameter.name, parameter.line).index;
      resolve(parameter.fallback, body);
    }
    owner->loads = inner.loads();
    resolve(owner->body, body);
    owner->function.num_slots = function.num_slots;
  }

  /// The names that a function's body may use without naming them as parameters.
  static void declare_special(Statement* owner, Symbols& inner) {
    const auto names = undeclared(inner.function(), owner->body, {"caller", "kwargs", "varargs"});
    const auto find_parameter = [&](std::string_view name) -> const Parameter* {
      for (const Parameter& parameter : owner->parameters)
        if (parameter.name == name) return &parameter;
      return nullptr;
    };
    const auto declare = [&](std::string_view name, int& slot) {
      if (!names.contains(name) || find_parameter(name) != nullptr) return;
      inner.declare_parameter(name);
      slot = slot_of({&inner}, name, owner->line).index;
    };
    const Parameter* caller = find_parameter("caller");
    owner->function.has_caller_parameter = caller != nullptr;
    if (caller != nullptr && caller->fallback == nullptr && names.contains("caller"))
      fail("line ", owner->line, ": a parameter named 'caller' needs a default");
    declare("caller", owner->function.caller);
    declare("kwargs", owner->function.kwargs);
    declare("varargs", owner->function.varargs);
  }

  SyntaxTree& tree_;
  int num_conditions_ = 0;
  uint64_t work_ = 0;
};

}  // namespace

void resolve_names(SyntaxTree& tree) {
  Resolver(tree).run();
}

}  // namespace kvcal::jinja
