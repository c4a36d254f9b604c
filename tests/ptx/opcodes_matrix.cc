// Matrix instructions of a warp.
#include "addresses.h"
#include "fragments.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

/// mma.m16n8k16: operands are four sums, four words of a, two of b, four sums to add to.
template <class Format>
void multiply(Warp& warp, const Instruction& instruction, uint32_t) {
  constexpr int kColumns = 8, kSums = 4, kFirstB = 8, kFirstC = 10;
  const Slot* const operands = instruction.operands;
  const FactorA a = factor_a<Format>(
      [&](int word, int lane) { return warp.words(operands[kSums + word])[lane]; });
  double b[kDepth][kColumns], sums[kRows][kColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int w = 0; w < 2; ++w) {
      const uint32_t pair = warp.words(operands[kFirstB + w])[lane];
      const int k = lane % 4 * 2 + w * 8;
      b[k][lane / 4] = Format::number(static_cast<uint16_t>(pair));
      b[k + 1][lane / 4] = Format::number(static_cast<uint16_t>(pair >> 16));
    }
    for (int i = 0; i < kSums; ++i)
      sums[sum_row(lane, i)][sum_column(lane, i)] =
          std::bit_cast<float>(warp.words(operands[kFirstC + i])[lane]);
  }
  add_product(sums, a, b);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kSums; ++i)
      warp.words(operands[i])[lane] =
          std::bit_cast<uint32_t>(static_cast<float>(sums[sum_row(lane, i)][sum_column(lane, i)]));
}

/// ldmatrix.x4: each group of eight lanes has the addresses of a matrix's rows of eight elements.
template <bool kTransposed>
void load_matrices(Warp& warp, const Instruction& instruction, uint32_t) {
  constexpr int kCount = 4, kSide = 8;
  uint16_t matrices[kCount][kSide][kSide];
  const Slot* const operands = instruction.operands;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t address = address_of(warp, instruction, operands[kCount], lane);
    std::memcpy(matrices[lane / kSide][lane % kSide],
                bytes_at<Space::kShared>(warp, instruction, address, {16, false}, lane), 16);
  }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int m = 0; m < kCount; ++m) {
      const int row = lane / 4, column = lane % 4 * 2;
      const auto& matrix = matrices[m];
      const uint32_t low = kTransposed ? matrix[column][row] : matrix[row][column];
      const uint32_t high = kTransposed ? matrix[column + 1][row] : matrix[row][column + 1];
      warp.words(operands[m])[lane] = low | high << 16;
    }
}

}  // namespace

void add_matrix_opcodes(Opcodes& opcodes) {
  const std::string product = "mma.sync.aligned.m16n8k16.row.col.f32.";
  const std::string operands = "WWWWwwwwwwwwww";
  opcodes.add(product + "f16.f16.f32", &multiply<Half>, operands, Flow::kAligned);
  opcodes.add(product + "bf16.bf16.f32", &multiply<BFloat>, operands, Flow::kAligned);
  opcodes.add("ldmatrix.sync.aligned.m8n8.x4.shared.b16", &load_matrices<false>, "WWWW@",
              Flow::kAligned);
  opcodes.add("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", &load_matrices<true>, "WWWW@",
              Flow::kAligned);
}

}  // namespace kvcal::ptx
