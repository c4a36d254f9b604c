#include "parser.h"

#include <charconv>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

uint32_t rounded_up(uint64_t value, uint32_t alignment) {
  return static_cast<uint32_t>((value + alignment - 1) / alignment * alignment);
}

constexpr std::string_view kind_name(Kind kind) {
  return kind == Kind::kPredicate ? "predicate" : kind == Kind::kWord ? "word" : "long";
}

/// The value of a literal as the bits of a register; nullopt where the text is none.
std::optional<uint64_t> literal(std::string_view text) {
  const bool is_float =
      text.size() > 2 && text[0] == '0' && std::string_view("fFdD").find(text[1]) != text.npos;
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const bool is_negative = text.starts_with('-');
  const std::string_view digits = text.substr(is_float || is_hex ? 2 : is_negative ? 1 : 0);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                            is_float || is_hex ? 16 : 10);
  if (digits.empty() || error != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return is_negative ? 0 - value : value;
}

/// Converts between registers of 32 and of 64 bits, where an instruction uses one that is wider
/// than its type.
template <class To, class From>
void convert(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Register<To> to(warp, instruction.operands[0]);
  const Register<From> from(warp, instruction.operands[1]);
  for_lanes(lanes, [&](int lane) { to.set(lane, static_cast<To>(from[lane])); });
}

class KernelParser {
 public:
  KernelParser(const Entry& entry, const ModuleScope& module) : entry_(entry), module_(module) {
    kernel_.name = entry.name;
  }

  Kernel parse() {
    parse_parameters();
    parse_attributes();
    const std::vector<Statement> statements = statements_of(entry_);
    for (const Statement& statement : statements)
      if (statement.text.starts_with(".shared")) declare(parse_declaration(statement.text));
    place_module_shared();
    for (const Statement& statement : statements) parse_statement(statement);
    finish();
    return std::move(kernel_);
  }

 private:
  using Number = uint32_t;  ///< of a virtual register
  using Scope = std::unordered_map<std::string, Number>;

  [[noreturn]] void fail_at(const Statement& statement, const std::string& what) const {
    fail("kernel ", kernel_.name, ", line ", statement.line, ", `", statement.text, "`: ", what);
  }

  void parse_parameters() {
    for (const std::string_view text : split(entry_.parameters, ',')) {
      const Declaration declaration = parse_declaration(text);
      const uint32_t offset = rounded_up(kernel_.parameter_bytes, declaration.alignment);
      const auto bytes = static_cast<uint32_t>(declaration.bytes());
      symbols_[declaration.name] = offset;
      kernel_.parameters.push_back({offset, bytes});
      kernel_.parameter_bytes = offset + bytes;
    }
  }

  void parse_attributes() {
    const size_t at = entry_.attributes.find(".maxntid");
    if (at == std::string_view::npos) return;
    std::string_view sizes = entry_.attributes.substr(at + std::string_view(".maxntid").size());
    sizes = sizes.substr(0, std::min(sizes.find('.'), sizes.find('\n')));
    kernel_.most_threads = 1;
    for (const std::string_view size : split(sizes, ','))
      kernel_.most_threads *= static_cast<uint32_t>(literal(size).value_or(0));
  }

  void declare(const Declaration& declaration) {
    uint32_t& total = declaration.space == ".shared" ? kernel_.shared_bytes : kernel_.local_bytes;
    const uint32_t base = declaration.space == ".shared" ? kSharedBase : 0;
    const uint32_t address = rounded_up(base + total, declaration.alignment);
    symbols_[declaration.name] = address;
    total = address - base + static_cast<uint32_t>(declaration.bytes());
  }

  /// Shared memory of the module that the kernel names; the dynamic part is behind all others.
  void place_module_shared() {
    std::vector<std::string> dynamic;
    for (const auto& [name, declaration] : module_.shared) {
      if (entry_.body.find(name) == std::string_view::npos) continue;
      if (declaration.is_extern)
        dynamic.push_back(name);
      else
        declare(declaration);
    }
    // Nothing promises more than 16 bytes, so the address is no multiple of 32.
    kernel_.dynamic_base = rounded_up(kSharedBase + kernel_.shared_bytes, 16);
    if (kernel_.dynamic_base % 32 == 0) kernel_.dynamic_base += 16;
    for (const std::string& name : dynamic) symbols_[name] = kernel_.dynamic_base;
  }

  void parse_statement(const Statement& statement) {
    using enum Statement::Kind;
    switch (statement.kind) {
      case kOpen:
        scopes_.emplace_back();
        return;
      case kClose:
        if (scopes_.size() == 1) fail_at(statement, "a brace closes nothing");
        scopes_.pop_back();
        return;
      case kLabel:
        labels_[std::string(statement.text)] = static_cast<uint32_t>(kernel_.code.size());
        return;
      case kDirective:
        parse_directive(statement);
        return;
      case kInstruction:
        parse_instruction(statement);
        return;
    }
  }

  void parse_directive(const Statement& statement) {
    const std::string_view text = statement.text;
    if (text.starts_with(".reg"))
      declare_registers(statement);
    else if (text.starts_with(".local"))
      declare(parse_declaration(text));
    else if (!text.starts_with(".shared") && !text.starts_with(".pragma"))
      fail_at(statement, "the judge does not know this directive");
  }

  /// ".reg .b32 %r<5>" or ".reg .b16 low, high".
  void declare_registers(const Statement& statement) {
    const std::string_view text = trimmed(statement.text.substr(std::string_view(".reg").size()));
    const size_t blank = text.find_first_of(" \t");
    const std::string_view type = text.substr(0, blank);
    const Kind kind = type == ".pred"        ? Kind::kPredicate
                      : type.ends_with("64") ? Kind::kLong
                                             : Kind::kWord;
    for (const std::string_view name : split(text.substr(blank), ',')) {
      const size_t angle = name.find('<');
      if (angle == name.npos) {
        scopes_.back()[std::string(name)] = add_register(kind);
        continue;
      }
      const auto count = literal(name.substr(angle + 1, name.find('>') - angle - 1));
      if (!count) fail_at(statement, "the number of registers is none");
      for (uint64_t i = 0; i < *count; ++i)
        scopes_.back()[std::string(name.substr(0, angle)) + std::to_string(i)] = add_register(kind);
    }
  }

  Number add_register(Kind kind, bool is_fixed = false) {
    registers_.push_back({kind, is_fixed});
    return static_cast<Number>(registers_.size() - 1);
  }

  std::optional<Number> find_register(std::string_view name) const {
    const std::string key(name);
    for (size_t i = scopes_.size(); i-- > 0;)
      if (const auto found = scopes_[i].find(key); found != scopes_[i].end()) return found->second;
    return std::nullopt;
  }

  Number constant(Kind kind, uint64_t value) {
    if (kind == Kind::kWord) value &= 0xffffffffu;
    if (kind == Kind::kPredicate) value = value ? kAllLanes : 0;
    const auto [found, is_new] = constants_.try_emplace({kind, value}, 0);
    if (is_new) found->second = add_register(kind, true);
    return found->second;
  }

  /// The register of "%tid.x"; nullopt where the name is none of these.
  std::optional<Number> special(std::string_view name) {
    static const std::map<std::string_view, Special> kNames{{"%tid", Special::kTid},
                                                            {"%ntid", Special::kNtid},
                                                            {"%ctaid", Special::kCtaid},
                                                            {"%nctaid", Special::kNctaid},
                                                            {"%laneid", Special::kLaneId}};
    const size_t dot = name.find('.');
    const auto found = kNames.find(name.substr(0, dot));
    if (found == kNames.end()) return std::nullopt;
    const int axis = dot == name.npos ? 0 : name[dot + 1] - 'x';
    const auto [known, is_new] = specials_.try_emplace({found->second, axis}, 0);
    if (is_new) known->second = add_register(Kind::kWord, true);
    return known->second;
  }

  std::optional<uint64_t> value_of(std::string_view text) const {
    if (const auto value = literal(text)) return value;
    if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
    if (const auto found = module_.globals.find(text); found != module_.globals.end())
      return found->second;
    return std::nullopt;
  }

  static Kind kind_of(char letter) {
    return letter == 'p' || letter == 'P'   ? Kind::kPredicate
           : letter == 'w' || letter == 'W' ? Kind::kWord
                                            : Kind::kLong;
  }

  /// An instruction under way, with conversions that must run around it.
  struct Draft {
    const Statement& statement;
    Instruction instruction;
    std::vector<Number> operands;
    std::vector<bool> is_written;
    std::vector<std::pair<Number, Number>> narrowed, widened;  ///< to, from
  };

  /// A register where the instruction wants another class: longs serve for words.
  Number converted(Draft& draft, Number number, Kind wanted, bool is_written) {
    const Kind kind = registers_[number].kind;
    if (kind == wanted) return number;
    if (kind != Kind::kLong || wanted != Kind::kWord)
      fail_at(draft.statement, "a " + std::string(kind_name(kind)) + " register, expected a " +
                                   std::string(kind_name(wanted)));
    const Number word = add_register(Kind::kWord);
    if (is_written)
      draft.widened.emplace_back(number, word);
    else
      draft.narrowed.emplace_back(word, number);
    return word;
  }

  void add_operand(Draft& draft, std::string_view text, char letter) {
    const bool is_written = letter >= 'A' && letter <= 'Z';
    if (text.starts_with('[')) return add_address(draft, text, letter);
    Number number = 0;
    if (const auto known = find_register(text))
      number = converted(draft, *known, kind_of(letter), is_written);
    else if (is_written && text == "_")
      number = add_register(kind_of(letter));
    else if (is_written)
      fail_at(draft.statement, "'" + std::string(text) + "' is no register");
    else if (const auto of_lane = special(text))
      number = converted(draft, *of_lane, kind_of(letter), false);
    else if (const auto value = value_of(text))
      number = constant(kind_of(letter), *value);
    else
      fail_at(draft.statement, "the judge does not know '" + std::string(text) + "'");
    draft.operands.push_back(number);
    draft.is_written.push_back(is_written);
  }

  /// "[%rd1+16]"; an instruction with a letter other than @ takes no offset.
  void add_address(Draft& draft, std::string_view text, char letter) {
    text = trimmed(text.substr(1, text.size() - 2));
    const size_t plus = text.find('+');
    const std::string_view base = trimmed(text.substr(0, plus));
    const auto offset = plus == text.npos ? 0 : literal(trimmed(text.substr(plus + 1)));
    const auto known = find_register(base);
    const auto value = known ? std::nullopt : value_of(base);
    if (!offset || (!known && !value) || (letter != '@' && *offset != 0))
      fail_at(draft.statement, "the judge does not know the address '" + std::string(text) + "'");
    const Kind kind = letter != '@' ? kind_of(letter)
                      : known       ? registers_[*known].kind
                                    : Kind::kLong;
    if (letter == '@') {
      draft.instruction.offset = static_cast<int64_t>(*offset);
      draft.instruction.has_short_address = kind == Kind::kWord;
    }
    draft.operands.push_back(known ? converted(draft, *known, kind, false)
                                   : constant(kind, *value));
    draft.is_written.push_back(false);
  }

  /// Removes "@%p1" or "@!%p1".
  std::string_view parse_predicate(const Statement& statement, Instruction& instruction) {
    std::string_view text = statement.text;
    if (!text.starts_with('@')) return text;
    const size_t end = text.find_first_of(" \t");
    instruction.is_negated = text[1] == '!';
    const std::string_view name =
        text.substr(instruction.is_negated ? 2 : 1, end - (instruction.is_negated ? 2 : 1));
    const auto known = find_register(name);
    if (!known || registers_[*known].kind != Kind::kPredicate)
      fail_at(statement, "'" + std::string(name) + "' is no predicate");
    instruction.is_predicated = true;
    instruction.predicate = *known;
    return trimmed(text.substr(end));
  }

  /// The name in Opcodes: forms that only operands tell apart have a name of their own.
  static std::string opcode_name(std::string_view name, std::string_view operands, size_t count) {
    std::string result(name);
    if (name == "mov.b32" || name == "mov.b64") {
      if (operands.starts_with('{')) return result + ".unpack";
      if (operands.find('{') != operands.npos) return result + ".pack";
    }
    if (name.starts_with("shfl.") && operands.find('|') != operands.npos) return result + ".valid";
    constexpr size_t kDescribed = 39;
    if (name.starts_with("wgmma.mma_async") && count == kDescribed) return result + ".described";
    return result;
  }

  static std::vector<std::string_view> operands_of(std::string_view text) {
    std::vector<std::string_view> operands;
    for (const std::string_view piece : split(text, ','))
      for (std::string_view operand : split(piece, '|')) {
        while (operand.starts_with('{')) operand = trimmed(operand.substr(1));
        while (operand.ends_with('}')) operand = trimmed(operand.substr(0, operand.size() - 1));
        operands.push_back(operand);
      }
    return operands;
  }

  void parse_instruction(const Statement& statement) {
    Draft draft{.statement = statement,
                .instruction = {},
                .operands = {},
                .is_written = {},
                .narrowed = {},
                .widened = {}};
    draft.instruction.line = statement.line;
    draft.instruction.text = statement.text;
    const std::string_view text = parse_predicate(statement, draft.instruction);
    const size_t blank = text.find_first_of(" \t");
    const std::string_view name = text.substr(0, blank);
    const std::string_view rest = blank == text.npos ? "" : trimmed(text.substr(blank));
    const std::vector<std::string_view> operands = operands_of(rest);
    const Opcode* const opcode = Opcodes::all().find(opcode_name(name, rest, operands.size()));
    if (!opcode) fail_at(statement, "the judge does not know this instruction");
    draft.instruction.run = opcode->run;
    draft.instruction.flow = opcode->flow;
    if (opcode->flow == Flow::kBranch) {
      jumps_.emplace_back(kernel_.code.size(), &statement);
    } else {
      if (operands.size() != opcode->operands.size())
        fail_at(statement, std::to_string(operands.size()) + " operands, expected " +
                               std::to_string(opcode->operands.size()));
      for (size_t i = 0; i < operands.size(); ++i)
        add_operand(draft, operands[i], opcode->operands[i]);
    }
    emit(draft, name);
  }

  void emit(const Draft& draft, std::string_view name) {
    for (const auto& [to, from] : draft.narrowed)
      emit_conversion(draft, &convert<uint32_t, uint64_t>, to, from);
    Instruction instruction = draft.instruction;
    instruction.operand_count = static_cast<uint8_t>(draft.operands.size());
    add_instruction(instruction, draft.operands, draft.is_written);
    const bool is_signed =
        name.ends_with(".s8") || name.ends_with(".s16") || name.ends_with(".s32");
    for (const auto& [to, from] : draft.widened)
      emit_conversion(draft, is_signed ? &convert<int64_t, int32_t> : &convert<uint64_t, uint32_t>,
                      to, from);
  }

  void emit_conversion(const Draft& draft, Handler run, Number to, Number from) {
    Instruction instruction = draft.instruction;
    instruction.run = run;
    instruction.flow = Flow::kNext;
    instruction.operand_count = 2;
    add_instruction(instruction, {to, from}, {true, false});
  }

  void add_instruction(const Instruction& instruction, const std::vector<Number>& operands,
                       const std::vector<bool>& is_written) {
    kernel_.code.push_back(instruction);
    kernel_.operands.insert(kernel_.operands.end(), operands.begin(), operands.end());
    is_written_.insert(is_written_.end(), is_written.begin(), is_written.end());
  }

  void finish() {
    Instruction end;
    end.flow = Flow::kExit;
    end.text = "end of the kernel";
    kernel_.code.push_back(end);
    for (const auto& [index, statement] : jumps_) {
      const size_t blank = statement->text.find_last_of(" \t");
      const auto label = labels_.find(std::string(trimmed(statement->text.substr(blank + 1))));
      if (label == labels_.end()) fail_at(*statement, "there is no such label");
      kernel_.code[index].target = label->second;
    }
    size_t at = 0;  // the operands move no more
    for (Instruction& instruction : kernel_.code) {
      instruction.operands = kernel_.operands.data() + at;
      at += instruction.operand_count;
    }
    std::vector<Slot> slots;
    assign_slots(kernel_, registers_, is_written_, slots);
    for (const auto& [key, number] : constants_)
      kernel_.constants.push_back({slots[number], key.first, key.second});
    for (const auto& [key, number] : specials_)
      kernel_.specials.push_back({slots[number], key.first, key.second});
  }

  const Entry& entry_;
  const ModuleScope& module_;
  Kernel kernel_;
  std::vector<Scope> scopes_{1};
  std::vector<VirtualRegister> registers_;
  std::vector<bool> is_written_;
  std::map<std::string, uint64_t, std::less<>> symbols_;
  std::unordered_map<std::string, uint32_t> labels_;
  std::map<std::pair<Kind, uint64_t>, Number> constants_;
  std::map<std::pair<Special, int>, Number> specials_;
  std::vector<std::pair<size_t, const Statement*>> jumps_;
};

}  // namespace

Kernel parse_kernel(const Entry& entry, const ModuleScope& scope) {
  return KernelParser(entry, scope).parse();
}

}  // namespace kvcal::ptx
