#include "jinja/interpreter.h"

#include <algorithm>

#include "jinja/calls.h"
#include "jinja/text_value.h"

namespace kvcal::jinja {
namespace {

/// Sets a variable until the block ends, however it ends.
template <class T>
class Exchanged {
 public:
  Exchanged(T& variable, T value) : variable_(variable), saved_(std::exchange(variable, value)) {}
  ~Exchanged() { variable_ = saved_; }
  Exchanged(const Exchanged&) = delete;
  Exchanged& operator=(const Exchanged&) = delete;

 private:
  T& variable_;
  T saved_;
};

/// Takes name out of named; missing if it is not there.
Value taken(Run& run, NamedValues& named, std::string_view name) {
  for (size_t i = 0; i < named.size(); ++i) {
    if (!equals(run, Value::text(named[i].first), Value::text(name))) continue;
    run.charge_bytes((named.size() - i) * sizeof(NamedValues::value_type));  // which move up
    const Value value = named[i].second;
    named.erase(named.begin() + static_cast<std::ptrdiff_t>(i));
    return value;
  }
  return {};
}

}  // namespace

Interpreter::Interpreter(const SyntaxTree& tree, Run& run, const Dict& variables,
                         std::function<std::tm()> clock)
    : tree_(tree), run_(run), variables_(variables), clock_(std::move(clock)), output_(run) {}

std::string Interpreter::render() {
  Dict globals;
  add_globals(run_, globals);
  scope_ = run_.make<Scope>(nullptr);
  for (const auto& [text, name] : tree_.names)
    for (const Dict* known : {&variables_, &std::as_const(globals)})
      if (const Value* found = known->find(run_, text); found != nullptr) {
        assign(*scope_, name, *found);
        break;
      }
  execute_scope(tree_.body);
  run_.charge_memory(output_.size());
  return std::string(output_);
}

Value* Interpreter::find(Scope& scope, int name) {
  run_.charge(1 + scope.variables.size() / 16);
  const auto found = std::ranges::find(scope.variables, name, &std::pair<int, Value>::first);
  return found == scope.variables.end() ? nullptr : &found->second;
}

Value Interpreter::look_up(int name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->outer)
    if (const Value* found = find(*scope, name); found != nullptr && !found->is_missing())
      return *found;
  return {};
}

void Interpreter::assign(Scope& scope, int name, const Value& value) {
  if (Value* found = find(scope, name)) {
    *found = value;
    return;
  }
  run_.charge_items(2);
  scope.variables.emplace_back(name, value);
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const Statement* statement : block)
    if (const Flow flow = execute(*statement); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Depth depth(run_);
  run_.charge();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      jinja::print(run_, Value::text(statement.text), *out_);
      break;
    case StatementKind::kPrint:
      jinja::print(run_, evaluate(*statement.value), *out_);
      break;
    case StatementKind::kIf:
      return execute_if(statement);
    case StatementKind::kFor:
      return execute_for(statement);
    case StatementKind::kSet:
      check_namespaces(*statement.target);
      assign(*statement.target, evaluate(*statement.value));
      break;
    case StatementKind::kSetBlock:
      return execute_set_block(statement);
    case StatementKind::kWith:
      return execute_with(statement);
    case StatementKind::kMacro:
      assign(*scope_, statement.name, make_macro(statement));
      break;
    case StatementKind::kCallBlock:
      execute_call_block(statement);
      break;
    case StatementKind::kFilterBlock:
      return execute_filter_block(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement) {
  for (const Branch& branch : statement.branches)
    if (is_true(evaluate(*branch.condition))) return execute(branch.body);
  return execute(statement.body);
}

Interpreter::Flow Interpreter::execute_scope(const Block& block) {
  for (const auto& [name, text] : block.late_names)
    assign(*scope_, name, undefined_name(run_, text));
  return execute(block);
}

Interpreter::Flow Interpreter::execute_inside(const Block& block, Text* text) {
  const Exchanged<Scope*> inside(scope_, run_.make<Scope>(scope_));
  const Exchanged<Text*> out(out_, text != nullptr ? text : out_);
  return execute_scope(block);
}

Value Interpreter::loop_source(const Statement& statement) {
  const Value source = evaluate(*statement.value);
  if (statement.condition == nullptr) return source;
  // Not entered before the loop asks for its first item, like the generator it stands for.
  struct State : Object {
    State(Run& run, const Value& source, Scope* around) : cursor(run, source), scope(around) {}
    Cursor cursor;
    Scope scope;
  };
  auto* state = run_.make<State>(run_, source, scope_);
  return make_iterator(run_, [this, &statement, state](Value& item) {
    const Exchanged<Scope*> inside(scope_, &state->scope);
    while (state->cursor.next(item)) {
      assign(*statement.target, item);
      if (!is_true(evaluate(*statement.condition))) continue;
      // The result is built anew from the target's names.
      if (statement.target->kind == ExpressionKind::kTuple)
        item = make_list(run_, items_of(run_, item), Type::kTuple);
      return true;
    }
    return false;
  });
}

Interpreter::Flow Interpreter::execute_for(const Statement& statement) {
  const Value source = loop_source(statement);
  Loop* loop = run_.make<Loop>(run_, source);
  bool has_run = false;
  {
    const Exchanged<Scope*> inside(scope_, run_.make<Scope>(scope_));
    for (Value item; loop->advance(item);) {
      line_ = statement.line;
      for (auto& [name, value] : scope_->variables) value = Value();
      assign(*statement.target, item);
      assign(*scope_, kLoopName, Value::object(Type::kLoop, loop));
      const Flow flow = execute_scope(statement.body);
      if (flow == Flow::kBreak) break;
      // An iteration cut short by continue does not count as one for the else branch: Jinja2's way.
      has_run |= flow == Flow::kNext;
    }
  }
  if (has_run || statement.otherwise.empty()) return Flow::kNext;
  return execute_inside(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement) {
  Scope* inner = run_.make<Scope>(scope_);
  for (const auto& [target, expression] : statement.assignments) {
    const Value value = evaluate(*expression);
    const Exchanged<Scope*> inside(scope_, inner);
    assign(*target, value);
  }
  const Exchanged<Scope*> inside(scope_, inner);
  return execute_scope(statement.body);
}

void Interpreter::check_namespaces(const Expression& target) {
  for_each_target(&target, [&](const Expression* name) {
    if (name->kind == ExpressionKind::kAttributeTarget && !look_up(name->name).is(Type::kNamespace))
      fail("cannot assign attribute on non-namespace object");
  });
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) return assign(*scope_, target.name, value);
  if (target.kind == ExpressionKind::kAttributeTarget) {
    const Value owner = look_up(target.name);
    if (!owner.is(Type::kNamespace)) fail("cannot assign attribute on non-namespace object");
    owner.as<Namespace>().attributes.set(run_, Value::text(target.attribute), value);
    return;
  }
  if (!is_iterable(value)) fail("cannot unpack non-iterable ", type_name(value), " object");
  const size_t wanted = target.items.size();
  Values items;
  Cursor cursor(run_, value);
  for (Value item; items.size() <= wanted && cursor.next(item);) items.push_back(item);
  if (items.size() > wanted) fail("too many values to unpack (expected ", wanted, ")");
  if (items.size() < wanted)
    fail("not enough values to unpack (expected ", wanted, ", got ", items.size(), ")");
  for (size_t i = 0; i < wanted; ++i) assign(*target.items[i], items[i]);
}

Interpreter::Flow Interpreter::execute_set_block(const Statement& statement) {
  Text text(run_);
  const Flow flow = execute_inside(statement.body, &text);
  if (flow != Flow::kNext) return flow;  // the loop is left before anything is assigned
  const Value captured_text = make_text(run_, std::move(text));
  const Value value =
      statement.value == nullptr ? captured_text : evaluate_filter(*statement.value, captured_text);
  check_namespaces(*statement.target);
  assign(*statement.target, value);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_filter_block(const Statement& statement) {
  Text text(run_);
  const Flow flow = execute_inside(statement.body, &text);
  if (flow != Flow::kNext) return flow;  // the loop is left and the text lost: Jinja2's way
  jinja::print(run_, evaluate_filter(*statement.value, make_text(run_, std::move(text))), *out_);
  return Flow::kNext;
}

Value Interpreter::make_macro(const Statement& definition) {
  auto* macro = run_.make<Macro>();
  macro->definition = &definition;
  macro->closure = scope_;
  return Value::object(Type::kMacro, macro);
}

void Interpreter::execute_call_block(const Statement& statement) {
  const Value caller = make_macro(statement);
  const Value text =
      statement.value == nullptr ? call(caller, {}) : evaluate_call(*statement.value, caller);
  jinja::print(run_, text, *out_);
}

Value Interpreter::call_macro(const Macro& macro, const CallArguments& call) {
  const Depth depth(run_);
  const Statement& definition = *macro.definition;
  const auto& parameters = definition.parameters;
  const std::string_view name = definition.text.empty() ? "caller" : definition.text;
  auto* scope = run_.make<Scope>(macro.closure);
  const size_t num_placed = std::min(parameters.size(), call.positional.size());
  NamedValues named = call.named;
  bool has_caller = false;
  for (size_t i = 0; i < parameters.size(); ++i) {
    has_caller |= parameters[i].name == kCallerName;
    assign(*scope, parameters[i].name,
           i < num_placed ? call.positional[i] : taken(run_, named, parameters[i].text));
  }
  if (definition.reads_caller && !has_caller) {
    const Value caller = taken(run_, named, "caller");
    const bool is_given = !caller.is_missing() && !caller.is_none();
    assign(*scope, kCallerName, is_given ? caller : undefined(run_, "No caller defined"));
  }
  if (definition.reads_kwargs)
    assign(*scope, kKwargsName, make_dict(run_, named));
  else if (!named.empty())
    fail("macro ", repr_of(name), " takes no keyword argument ", repr_of(named.front().first));
  if (definition.reads_varargs)
    assign(*scope, kVarargsName,
           make_list(run_,
                     {call.positional.begin() + static_cast<std::ptrdiff_t>(num_placed),
                      call.positional.end()},
                     Type::kTuple));
  else if (call.positional.size() > parameters.size())
    fail("macro ", repr_of(name), " takes not more than ", parameters.size(), " argument(s)");

  const Exchanged<Scope*> inside(scope_, scope);
  for (const Parameter& parameter : parameters) {
    if (!find(*scope, parameter.name)->is_missing()) continue;
    assign(*scope, parameter.name,
           parameter.fallback != nullptr
               ? evaluate(*parameter.fallback)
               : undefined(run_, "parameter " + repr_of(parameter.text) + " was not provided"));
  }
  Text text(run_);
  const Exchanged<Text*> out(out_, &text);
  execute_scope(definition.body);
  return make_text(run_, std::move(text));
}

}  // namespace kvcal::jinja
