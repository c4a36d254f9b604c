// Places of registers in a warp's file.
#include <algorithm>
#include <array>
#include <bit>

#include "parser.h"

namespace kvcal::ptx {
namespace {

/// A set of registers.
class Set {
 public:
  explicit Set(size_t size) : words_((size + 63) / 64) {}
  void insert(uint32_t i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  bool has(uint32_t i) const { return (words_[i / 64] >> i % 64 & 1) != 0; }
  /// this |= other without those of except; whether that added one.
  bool add(const Set& other, const Set* except = nullptr) {
    uint64_t added = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      const uint64_t more = other.words_[w] & (except ? ~except->words_[w] : ~uint64_t{0});
      added |= more & ~words_[w];
      words_[w] |= more;
    }
    return added != 0;
  }
  template <class Body>
  void each(const Body& body) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
        body(static_cast<uint32_t>(w * 64) + static_cast<uint32_t>(std::countr_zero(rest)));
  }

 private:
  std::vector<uint64_t> words_;
};

/// Instructions [begin, end) that run one after the other.
struct BasicBlock {
  BasicBlock(size_t begin_, size_t end_, size_t registers)
      : begin(begin_),
        end(end_),
        read(registers),
        written(registers),
        in(registers),
        out(registers) {}
  size_t begin, end;
  Set read;     ///< before it is written here
  Set written;  ///< in all lanes that run the block
  Set in, out;  ///< needed at the begin and at the end
  std::vector<size_t> next;
};

class Allocator {
 public:
  Allocator(Kernel& kernel, const std::vector<VirtualRegister>& registers,
            const std::vector<bool>& is_written)
      : kernel_(kernel),
        registers_(registers),
        is_written_(is_written),
        needed_(registers.size()),
        is_alone_(registers.size(), false) {}

  std::vector<Slot> run() {
    find_blocks();
    find_uses();
    spread_needs();
    find_ranges();
    return place();
  }

 private:
  /// Positions at which a register must keep its value.
  struct Range {
    size_t first = SIZE_MAX, last = 0;
    void cover(size_t at) {
      first = std::min(first, at);
      last = std::max(last, at);
    }
  };

  void find_blocks() {
    const size_t size = kernel_.code.size();
    std::vector<bool> begins(size + 1, false);
    begins[0] = begins[size] = true;
    for (size_t i = 0; i < size; ++i) {
      if (kernel_.code[i].flow == Flow::kBranch) begins[kernel_.code[i].target] = true;
      if (kernel_.code[i].flow == Flow::kBranch || kernel_.code[i].flow == Flow::kExit)
        begins[i + 1] = true;
    }
    std::vector<size_t> block_at(size);
    for (size_t i = 0, begin = 0; i < size; ++i) {
      block_at[i] = blocks_.size();
      if (!begins[i + 1]) continue;
      blocks_.emplace_back(begin, i + 1, registers_.size());
      begin = i + 1;
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const Instruction& last = kernel_.code[blocks_[b].end - 1];
      const bool ends = last.flow == Flow::kBranch || last.flow == Flow::kExit;
      if (last.flow == Flow::kBranch) blocks_[b].next.push_back(block_at[last.target]);
      if ((!ends || last.is_predicated) && b + 1 < blocks_.size()) blocks_[b].next.push_back(b + 1);
    }
  }

  /// Calls body(register, is written) for an instruction's registers, the read ones first.
  template <class Body>
  void each_register(const Instruction& instruction, const Body& body) const {
    if (instruction.is_predicated) body(instruction.predicate, false);
    const auto first = static_cast<size_t>(instruction.operands - kernel_.operands.data());
    for (const bool written : {false, true})
      for (size_t i = 0; i < instruction.operand_count; ++i)
        if (is_written_[first + i] == written) body(instruction.operands[i], written);
  }

  void find_uses() {
    for (BasicBlock& block : blocks_)
      for (size_t i = block.begin; i < block.end; ++i) {
        const Instruction& instruction = kernel_.code[i];
        const bool is_async = instruction.text.starts_with("wgmma.mma_async");
        each_register(instruction, [&](uint32_t number, bool written) {
          needed_[number].cover(i);
          // Products read and write registers later.
          if (is_async) is_alone_[number] = true;
          if (!written && !block.written.has(number)) block.read.insert(number);
          if (written && !instruction.is_predicated) block.written.insert(number);
        });
      }
  }

  void spread_needs() {
    for (BasicBlock& block : blocks_) block.in.add(block.read);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t b = blocks_.size(); b-- > 0;) {
        BasicBlock& block = blocks_[b];
        for (const size_t next : block.next) block.out.add(blocks_[next].in);
        changed = block.in.add(block.out, &block.written) || changed;
      }
    }
  }

  void find_ranges() {
    for (const BasicBlock& block : blocks_) {
      block.in.each([&](uint32_t number) { needed_[number].cover(block.begin); });
      block.out.each([&](uint32_t number) { needed_[number].cover(block.end - 1); });
    }
    // What is needed at the kernel's begin may be read before it is written.
    blocks_.front().in.each([&](uint32_t number) { is_alone_[number] = true; });
  }

  std::vector<Slot> place() {
    std::vector<Slot> slots(registers_.size(), 0);
    std::vector<uint32_t> shared;
    Slot top = 0;
    const auto take = [&](Kind kind) {
      const Slot slot = (top + 31) / 32 * 32;
      top = slot + bytes_of(kind);
      return slot;
    };
    for (uint32_t i = 0; i < registers_.size(); ++i) {
      if (registers_[i].is_fixed || needed_[i].first == SIZE_MAX) continue;
      if (is_alone_[i])
        slots[i] = take(registers_[i].kind);
      else
        shared.push_back(i);
    }
    std::ranges::sort(shared, {}, [&](uint32_t i) { return needed_[i].first; });
    std::array<std::vector<std::pair<size_t, Slot>>, 3> used;  // heaps by the last position
    constexpr auto later = std::greater<std::pair<size_t, Slot>>{};
    for (const uint32_t i : shared) {
      auto& heap = used[static_cast<size_t>(registers_[i].kind)];
      if (!heap.empty() && heap.front().first < needed_[i].first) {
        std::ranges::pop_heap(heap, later);
        slots[i] = heap.back().second;
        heap.back().first = needed_[i].last;
      } else {
        slots[i] = take(registers_[i].kind);
        heap.emplace_back(needed_[i].last, slots[i]);
      }
      std::ranges::push_heap(heap, later);
    }
    kernel_.register_bytes = (top + 31) / 32 * 32;
    top = kernel_.register_bytes;
    for (uint32_t i = 0; i < registers_.size(); ++i)
      if (registers_[i].is_fixed) slots[i] = take(registers_[i].kind);
    kernel_.file_bytes = (top + 63) / 64 * 64;
    return slots;
  }

  Kernel& kernel_;
  const std::vector<VirtualRegister>& registers_;
  const std::vector<bool>& is_written_;
  std::vector<BasicBlock> blocks_;
  std::vector<Range> needed_;
  std::vector<bool> is_alone_;
};

}  // namespace

void assign_slots(Kernel& kernel, const std::vector<VirtualRegister>& registers,
                  const std::vector<bool>& is_written, std::vector<Slot>& slots) {
  slots = Allocator(kernel, registers, is_written).run();
  for (Slot& operand : kernel.operands) operand = slots[operand];
  for (Instruction& instruction : kernel.code)
    if (instruction.is_predicated) instruction.predicate = slots[instruction.predicate];
}

}  // namespace kvcal::ptx
