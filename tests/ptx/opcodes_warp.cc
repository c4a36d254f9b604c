// What lanes of a warp and warps of a block do together, and copies beside the computation.
#include "addresses.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// shfl.sync: operands result, value, b, c. Lanes that would read outside of their segment keep
/// their own value; reading a lane that does not take part is an error.
template <class F, bool kTellsValid>
void shuffle(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  constexpr int kShift = kTellsValid ? 1 : 0;
  const Slot* const operands = instruction.operands;
  const uint32_t* const value = warp.words(operands[kShift + 1]);
  const uint32_t* const b = warp.words(operands[kShift + 2]);
  const uint32_t* const c = warp.words(operands[kShift + 3]);
  uint32_t results[kLanes] = {}, valid = 0;
  for_lanes(lanes, [&](int lane) {
    const auto segment = static_cast<int>(c[lane] >> 8 & 31);
    const auto clamp = static_cast<int>(c[lane] & 31);
    const int first = lane & segment, last = (lane & segment) | (clamp & ~segment);
    const auto [source, is_valid] = F{}(lane, static_cast<int>(b[lane] & 31), first, last, segment);
    const int from = is_valid ? source : lane;
    if ((lanes >> from & 1) == 0)
      stop(warp, instruction,
           "lane " + std::to_string(lane) + " reads lane " + std::to_string(from) +
               ", which does not take part");
    results[lane] = value[from];
    valid |= static_cast<uint32_t>(is_valid) << lane;
  });
  uint32_t* const result = warp.words(operands[0]);
  for_lanes(lanes, [&](int lane) { result[lane] = results[lane]; });
  if (kTellsValid) set_predicate(warp, operands[1], valid, lanes);
}

using Shuffled = std::pair<int, bool>;

template <class F>
void add_shuffle(Opcodes& opcodes, const std::string& mode, F) {
  opcodes.add("shfl.sync." + mode + ".b32", &shuffle<F, false>, "Wwwww", Flow::kMasked);
  opcodes.add("shfl.sync." + mode + ".b32.valid", &shuffle<F, true>, "WPwwww", Flow::kMasked);
}

void add_shuffles(Opcodes& opcodes) {
  add_shuffle(opcodes, "up", [](int lane, int b, int, int last, int) {
    return Shuffled(lane - b, lane - b >= last);
  });
  add_shuffle(opcodes, "down", [](int lane, int b, int, int last, int) {
    return Shuffled(lane + b, lane + b <= last);
  });
  add_shuffle(opcodes, "bfly", [](int lane, int b, int, int last, int) {
    return Shuffled(lane ^ b, (lane ^ b) <= last);
  });
  add_shuffle(opcodes, "idx", [](int, int b, int first, int last, int segment) {
    const int source = first | (b & ~segment);
    return Shuffled(source, source <= last);
  });
}

void add_votes(Opcodes& opcodes) {
  opcodes.add(
      "vote.sync.ballot.b32",
      [](Warp& warp, const Instruction& instruction, uint32_t lanes) {
        const uint32_t votes = warp.mask(instruction.operands[1]) & lanes;
        uint32_t* const result = warp.words(instruction.operands[0]);
        for_lanes(lanes, [&](int lane) { result[lane] = votes; });
      },
      "Wpw", Flow::kMasked);
  opcodes.add(
      "vote.sync.any.pred",
      [](Warp& warp, const Instruction& instruction, uint32_t lanes) {
        const uint32_t votes = warp.mask(instruction.operands[1]) & lanes;
        set_predicate(warp, instruction.operands[0], votes ? kAllLanes : 0, lanes);
      },
      "Ppw", Flow::kMasked);
  opcodes.add(
      "vote.sync.all.pred",
      [](Warp& warp, const Instruction& instruction, uint32_t lanes) {
        const uint32_t votes = warp.mask(instruction.operands[1]) & lanes;
        set_predicate(warp, instruction.operands[0], votes == lanes ? kAllLanes : 0, lanes);
      },
      "Ppw", Flow::kMasked);
}

/// cp.async: operands target, source, bytes, bytes that exist. The target is NaN until the copy is
/// done, when the thread waits for it.
void start_copy(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Slot* const operands = instruction.operands;
  for_lanes(lanes, [&](int lane) {
    const AsyncCopy copy{.to = warp.words(operands[0])[lane],
                         .bytes = warp.words(operands[2])[lane],
                         .existing = warp.words(operands[3])[lane],
                         .from = warp.longs(operands[1])[lane],
                         .lane = lane,
                         .instruction = &instruction};
    if (copy.bytes != 16 || copy.existing > copy.bytes)
      stop(warp, instruction,
           "cp.async copies " + std::to_string(copy.existing) + " of " +
               std::to_string(copy.bytes) + " bytes, expected up to 16 of 16");
    if (copy.existing > 0)
      (void)global_bytes(warp, instruction, copy.from, copy.bytes);
    else if (copy.from % copy.bytes != 0)
      stop(warp, instruction, "cp.async from an address that is not aligned to 16");
    std::memset(bytes_at<Space::kShared>(warp, instruction, copy.to, {copy.bytes, true}, lane),
                0xff, copy.bytes);
    warp.copies.push_back(copy);
  });
}

void do_nothing(Warp&, const Instruction&, uint32_t) {}

}  // namespace

void Warp::finish_copies(uint32_t lanes) {
  std::erase_if(copies, [&](const AsyncCopy& copy) {
    if ((lanes >> copy.lane & 1) == 0) return false;
    std::byte* const to =
        bytes_at<Space::kShared>(*this, *copy.instruction, copy.to, {copy.bytes, true}, copy.lane);
    std::memset(to, 0, copy.bytes);
    if (copy.existing > 0)
      std::memcpy(to, global_bytes(*this, *copy.instruction, copy.from, copy.bytes), copy.existing);
    return true;
  });
}

void add_warp_opcodes(Opcodes& opcodes) {
  opcodes.add("bra", nullptr, "", Flow::kBranch);
  opcodes.add("bra.uni", nullptr, "", Flow::kBranch);
  opcodes.add("ret", nullptr, "", Flow::kExit);
  opcodes.add("exit", nullptr, "", Flow::kExit);
  opcodes.add("bar.sync", nullptr, "w", Flow::kBarrier);
  opcodes.add("barrier.sync", nullptr, "w", Flow::kBarrier);
  opcodes.add(
      "bar.warp.sync", [](Warp& warp, const Instruction&, uint32_t) { warp.pass_barrier(); }, "w",
      Flow::kMasked);
  // Memory is as strong as it can be here: order of memory is not judged.
  for (const std::string fence : {"membar.cta", "membar.gl", "fence.acq_rel.gpu"})
    opcodes.add(fence, &do_nothing, "");
  add_shuffles(opcodes);
  add_votes(opcodes);
  opcodes.add("cp.async.cg.shared.global", &start_copy, "wlww");
  opcodes.add(
      "cp.async.wait_all",
      [](Warp& warp, const Instruction&, uint32_t lanes) { warp.finish_copies(lanes); }, "");
  opcodes.add(
      "fence.proxy.async.shared::cta",
      [](Warp& warp, const Instruction&, uint32_t lanes) {
        warp.block().shared.publish(warp.id(), lanes);
      },
      "");
}

}  // namespace kvcal::ptx
