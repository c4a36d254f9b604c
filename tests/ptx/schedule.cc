#include "schedule.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace kvcal::ptx {
namespace {

/// Whether lanes that stand at an instruction may run it, or must wait for others.
bool may_run(const Warp& warp, const Instruction& instruction, uint32_t lanes) {
  if (instruction.flow == Flow::kNext) return true;
  uint32_t needed = kAllLanes;
  if (instruction.flow == Flow::kMasked) {
    const uint32_t* const masks = warp.words(instruction.operands[instruction.operand_count - 1]);
    needed = masks[std::countr_zero(lanes)];
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      if (masks[lane] != needed || (needed >> lane & 1) == 0)
        stop(warp, instruction,
             "lane " + std::to_string(lane) + " has the mask " + hex(masks[lane]) +
                 ", which differs from others or does not name the lane");
    }
  }
  if ((needed & warp.exited) != 0)
    stop(warp, instruction,
         "lanes " + hex(needed & warp.exited) + " have exited, which the instruction waits for");
  return (needed & ~lanes) == 0;
}

/// Runs a warp until all its lanes wait at a barrier of the block or have ended.
class WarpRun {
 public:
  explicit WarpRun(Warp& warp) : warp_(warp), code_(warp.block().kernel.code) {}

  /// Whether the warp waits at a barrier, which it is then moved behind of.
  const Instruction* run() {
    while (!warp_.groups.empty()) {
      merge();
      const auto next = next_group();
      if (next == warp_.groups.end()) return barrier();
      const LaneGroup group = *next;
      warp_.groups.erase(next);
      run_group(group);
    }
    return nullptr;
  }

 private:
  /// Lanes that stand at the same place go on together.
  void merge() {
    auto& groups = warp_.groups;
    for (size_t i = 0; i < groups.size(); ++i)
      for (size_t j = groups.size() - 1; j > i; --j)
        if (groups[i].pc == groups[j].pc) {
          groups[i].lanes |= groups[j].lanes;
          groups[i].is_waiting = false;
          groups.erase(groups.begin() + static_cast<ptrdiff_t>(j));
        }
  }

  /// The group that is furthest back, so that others wait for it where they meet.
  std::vector<LaneGroup>::iterator next_group() {
    auto best = warp_.groups.end();
    for (auto group = warp_.groups.begin(); group != warp_.groups.end(); ++group)
      if (!group->is_waiting && (best == warp_.groups.end() || group->pc < best->pc)) best = group;
    return best;
  }

  const Instruction* barrier() {
    LaneGroup& group = warp_.groups.front();
    const Instruction& instruction = code_[group.pc];
    if (warp_.groups.size() > 1 || instruction.flow != Flow::kBarrier)
      stop(warp_, instruction,
           "lanes " + hex(group.lanes) + " wait for others that never come here");
    if (group.lanes != kAllLanes)
      stop(warp_, instruction,
           "lanes " + hex(warp_.exited) + " have exited before a barrier of the block");
    ++group.pc;
    group.is_waiting = false;
    warp_.pass_barrier();
    return &instruction;
  }

  uint32_t enabled(const Instruction& instruction, uint32_t lanes) const {
    if (!instruction.is_predicated) return lanes;
    const uint32_t predicate = warp_.mask(instruction.predicate);
    return lanes & (instruction.is_negated ? ~predicate : predicate);
  }

  /// Runs lanes until they part, wait, end or reach others.
  void run_group(LaneGroup group) {
    uint32_t limit = UINT32_MAX;
    for (const LaneGroup& other : warp_.groups) limit = std::min(limit, other.pc);
    uint32_t pc = group.pc;
    do {
      const Instruction& instruction = code_[pc];
      if (instruction.flow == Flow::kNext) [[likely]] {
        const uint32_t lanes = enabled(instruction, group.lanes);
        if (lanes != 0) instruction.run(warp_, instruction, lanes);
        ++pc;
      } else if (!run_flow(instruction, group.lanes, pc)) {
        return;
      }
    } while (pc < limit);
    warp_.groups.push_back({pc, group.lanes, false});
  }

  /// Runs an instruction that concerns other lanes or the order; false where the group stops here.
  bool run_flow(const Instruction& instruction, uint32_t& lanes, uint32_t& pc) {
    const uint32_t taken = enabled(instruction, lanes);
    if (instruction.flow == Flow::kBranch) return branch(instruction, taken, lanes, pc);
    if (instruction.flow == Flow::kExit) {
      end(instruction, taken);
      lanes &= ~taken;
      ++pc;
      return lanes != 0;
    }
    if (taken != lanes) {  // the others go on, or all
      if (taken != 0) warp_.groups.push_back({pc + 1, lanes & ~taken, false});
      if (taken == 0) {
        ++pc;
        return true;
      }
      lanes = taken;
    }
    if (instruction.flow == Flow::kBarrier || !may_run(warp_, instruction, lanes)) {
      warp_.groups.push_back({pc, lanes, true});
      return false;
    }
    instruction.run(warp_, instruction, lanes);
    ++pc;
    return true;
  }

  bool branch(const Instruction& instruction, uint32_t taken, uint32_t lanes, uint32_t& pc) {
    if (taken != 0 && taken != lanes) {
      warp_.groups.push_back({instruction.target, taken, false});
      warp_.groups.push_back({pc + 1, lanes & ~taken, false});
      return false;
    }
    pc = taken != 0 ? instruction.target : pc + 1;
    return true;
  }

  void end(const Instruction& instruction, uint32_t lanes) {
    warp_.exited |= lanes;
    warp_.finish_copies(lanes);
    if (!warp_.products.open.empty() || !warp_.products.committed.empty())
      stop(warp_, instruction, "a warp ends with products under way");
  }

  Warp& warp_;
  const std::vector<Instruction>& code_;
};

uint32_t special_value(const Block& block, const SpecialRegister& special, uint32_t thread) {
  const uint32_t* const threads = block.threads;
  const uint32_t of_thread[] = {thread % threads[0], thread / threads[0] % threads[1],
                                thread / threads[0] / threads[1]};
  switch (special.what) {
    case Special::kTid:
      return of_thread[special.axis];
    case Special::kNtid:
      return threads[special.axis];
    case Special::kCtaid:
      return block.index[special.axis];
    case Special::kNctaid:
      return block.grid[special.axis];
    case Special::kLaneId:
      return thread % kLanes;
  }
  return 0;
}

/// Registers start as ones: NaN as floats, and addresses of nothing.
void start_file(const Block& block, const Warp& warp) {
  std::memset(warp.at(0), 0xff, block.kernel.register_bytes);
  for (const SpecialRegister& special : block.kernel.specials)
    for (int lane = 0; lane < kLanes; ++lane)
      warp.words(special.slot)[lane] =
          special_value(block, special, static_cast<uint32_t>(warp.id() * kLanes + lane));
}

}  // namespace

bool runs_in_reverse() {
  static const bool reverse = [] {
    const char* const asked = std::getenv("KVCAL_PTX_ORDER");
    const std::string name = asked ? asked : "forward";
    if (name != "forward" && name != "reverse")
      stop("KVCAL_PTX_ORDER is '" + name + "', expected forward or reverse");
    return name == "reverse";
  }();
  return reverse;
}

void write_constants(const Kernel& kernel, std::byte* file) {
  for (const auto& [slot, kind, value] : kernel.constants) {
    auto* const words = reinterpret_cast<uint32_t*>(file + slot);
    auto* const longs = reinterpret_cast<uint64_t*>(file + slot);
    if (kind == Kind::kPredicate) *words = static_cast<uint32_t>(value);
    if (kind == Kind::kWord) std::fill_n(words, kLanes, static_cast<uint32_t>(value));
    if (kind == Kind::kLong) std::fill_n(longs, kLanes, value);
  }
}

void run_block(Block& block, std::byte* files) {
  const int count = static_cast<int>(block.thread_count() / kLanes);
  std::vector<Warp> warps;
  for (int w = 0; w < count; ++w) {
    warps.emplace_back(block, w, files + static_cast<size_t>(w) * block.kernel.file_bytes);
    start_file(block, warps.back());
  }
  if (runs_in_reverse()) std::ranges::reverse(warps);
  for (bool goes_on = true; goes_on;) {
    const Instruction* met = nullptr;
    const Warp* ended = nullptr;
    for (Warp& warp : warps) {
      const Instruction* const barrier = WarpRun(warp).run();
      if (!barrier) ended = &warp;
      if (met && barrier && barrier != met)
        stop(warp, *barrier, "warps of the block wait at different barriers");
      if (barrier) met = barrier;
    }
    if (met && ended) stop(*ended, *met, "the warp has ended, and others wait at a barrier");
    block.shared.pass_barrier();
    goes_on = met != nullptr;
  }
}

}  // namespace kvcal::ptx
