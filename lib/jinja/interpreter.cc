#include "jinja/interpreter.h"

#include "jinja/calls.h"
#include "jinja/printing.h"
#include "jinja/python_str.h"

namespace kvcal::jinja {
namespace {

/// Puts a variable back when the scope ends, however it ends.
template <class T>
class Restore {
 public:
  explicit Restore(T& variable) : variable_(variable), saved_(variable) {}
  ~Restore() { variable_ = saved_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T saved_;
};

}  // namespace

Interpreter::Interpreter(const SyntaxTree& tree, Run& run, const Dict& variables,
                         std::function<std::tm()> clock)
    : tree_(tree),
      run_(run),
      variables_(variables),
      globals_(run),
      clock_(std::move(clock)),
      output_(run.text()) {
  add_globals(run, globals_);
}

std::string Interpreter::render() {
  activation_ = run_.make<Activation>(run_, tree_.num_slots);
  enter(tree_.loads);
  execute(tree_.body);
  run_.charge_memory(output_.size());
  return std::string(output_);
}

Value Interpreter::look_up(std::string_view name) const {
  if (const Value* found = variables_.find(run_, name)) return *found;
  if (const Value* found = globals_.find(run_, name)) return *found;
  return {};
}

Value& Interpreter::variable(const Slot& slot) {
  Activation* activation = activation_;
  for (int i = 0; i < slot.up; ++i) activation = activation->outer;
  return activation->slots[static_cast<size_t>(slot.index)];
}

void Interpreter::enter(const std::vector<Load>& loads) {
  run_.charge(loads.size());
  for (const Load& load : loads) {
    Value& target = activation_->slots[static_cast<size_t>(load.index)];
    switch (load.from) {
      case Load::From::kContext:
        target = look_up(load.name);
        break;
      case Load::From::kOuter:
        target = variable(load.outer);
        break;
      case Load::From::kParameter:
      case Load::From::kNothing:
        target = Value();
        break;
    }
  }
}

template <class Body>
Interpreter::Flow Interpreter::captured(Text& text, Body&& body) {
  const Restore<Text*> restore(out_);
  out_ = &text;
  return body();
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
      execute_set(statement);
      break;
    case StatementKind::kSetBlock:
      return execute_set_block(statement);
    case StatementKind::kWith:
      return execute_with(statement);
    case StatementKind::kMacro:
      variable(statement.target_slots[0]) = make_macro(statement);
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

Value Interpreter::loop_source(const Statement& statement) {
  const Value source = evaluate(*statement.value);
  if (statement.condition == nullptr) return source;
  // Not entered before the loop asks for its first item, like the generator it stands for.
  struct State : Object {
    State(Run& run, const Value& source, Activation* at) : cursor(run, source), home(at) {}
    Cursor cursor;
    Activation* home;
    bool is_entered = false;
  };
  auto* state = run_.make<State>(run_, source, activation_);
  return make_iterator(run_, [this, &statement, state](Value& item) {
    const Restore<Activation*> restore(activation_);
    activation_ = state->home;
    if (!state->is_entered) enter(statement.condition_loads);
    state->is_entered = true;
    while (state->cursor.next(item)) {
      size_t next = 0;
      assign(*statement.target, item, statement.condition_slots, next);
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
  for (Value item; loop->advance(item);) {
    line_ = statement.line;
    size_t next = 0;
    assign(*statement.target, item, statement.target_slots, next);
    if (statement.loop_slot >= 0)
      activation_->slots[static_cast<size_t>(statement.loop_slot)] =
          Value::object(Type::kLoop, loop);
    enter(statement.loads);
    const Flow flow = execute(statement.body);
    if (flow == Flow::kBreak) break;
    // An iteration cut short by continue does not count as one for the else branch: Jinja2's way.
    has_run |= flow == Flow::kNext;
  }
  if (has_run || statement.otherwise.empty()) return Flow::kNext;
  enter(statement.otherwise_loads);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement) {
  enter(statement.loads);
  size_t next = 0;
  for (const auto& [target, value] : statement.assignments)
    assign(*target, evaluate(*value), statement.target_slots, next);
  return execute(statement.body);
}

void Interpreter::check_namespaces(const Expression& target) {
  for_each_target(&target, [&](const Expression* name) {
    if (name->kind == ExpressionKind::kAttributeTarget &&
        !variable(name->slot).is(Type::kNamespace))
      fail("cannot assign attribute on non-namespace object");
  });
}

void Interpreter::execute_set(const Statement& statement) {
  check_namespaces(*statement.target);
  size_t next = 0;
  assign(*statement.target, evaluate(*statement.value), statement.target_slots, next);
}

void Interpreter::assign(const Expression& target, const Value& value,
                         const std::vector<Slot>& slots, size_t& next) {
  if (target.kind == ExpressionKind::kName) {
    variable(slots[next++]) = value;
    return;
  }
  if (target.kind == ExpressionKind::kAttributeTarget) {
    const Value& owner = variable(target.slot);
    if (!owner.is(Type::kNamespace)) fail("cannot assign attribute on non-namespace object");
    owner.as<Namespace>().attributes.set(run_, Value::text(target.attribute), value);
    return;
  }
  if (!is_iterable(value)) fail("cannot unpack non-iterable ", type_name(value), " object");
  const size_t wanted = target.items.size();
  Values items(run_);
  Cursor cursor(run_, value);
  for (Value item; items.size() <= wanted && cursor.next(item);) items.push_back(item);
  if (items.size() > wanted) fail("too many values to unpack (expected ", wanted, ")");
  if (items.size() < wanted)
    fail("not enough values to unpack (expected ", wanted, ", got ", items.size(), ")");
  for (size_t i = 0; i < wanted; ++i) assign(*target.items[i], items[i], slots, next);
}

Interpreter::Flow Interpreter::execute_set_block(const Statement& statement) {
  enter(statement.loads);
  Text text = run_.text();
  const Flow flow = captured(text, [&] { return execute(statement.body); });
  if (flow != Flow::kNext) return flow;  // the loop is left before anything is assigned
  const Value captured_text = make_text(run_, std::move(text));
  const Value value =
      statement.value == nullptr ? captured_text : evaluate_filter(*statement.value, captured_text);
  check_namespaces(*statement.target);
  size_t next = 0;
  assign(*statement.target, value, statement.target_slots, next);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_filter_block(const Statement& statement) {
  enter(statement.loads);
  Text text = run_.text();
  const Flow flow = captured(text, [&] { return execute(statement.body); });
  if (flow != Flow::kNext) return flow;  // the loop is left and the text lost: Jinja2's way
  jinja::print(run_, evaluate_filter(*statement.value, make_text(run_, std::move(text))), *out_);
  return Flow::kNext;
}

Value Interpreter::make_macro(const Statement& definition) {
  auto* macro = run_.make<Macro>();
  macro->definition = &definition;
  macro->closure = activation_;
  return Value::object(Type::kMacro, macro);
}

void Interpreter::execute_call_block(const Statement& statement) {
  const Value caller = make_macro(statement);
  const Value text = statement.value == nullptr ? call(caller, CallArguments(run_))
                                                : evaluate_call(*statement.value, caller);
  jinja::print(run_, text, *out_);
}

Value Interpreter::run_function(const Statement& definition, Activation* activation) {
  const Depth depth(run_);
  const Restore<Activation*> restore_activation(activation_);
  activation_ = activation;
  enter(definition.loads);
  for (const Parameter& parameter : definition.parameters) {
    Value& value = activation->slots[static_cast<size_t>(parameter.index)];
    if (!value.is_missing()) continue;
    value =
        parameter.fallback != nullptr
            ? evaluate(*parameter.fallback)
            : undefined(run_, "parameter " + repr_of(run_, parameter.name) + " was not provided");
  }
  Text text = run_.text();
  captured(text, [&] { return execute(definition.body); });
  return make_text(run_, std::move(text));
}

}  // namespace kvcal::jinja
