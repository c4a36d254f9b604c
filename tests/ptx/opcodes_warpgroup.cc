// Asynchronous products of a warpgroup (sm_90a): 64 × 16 times 16 × 64, of which each warp makes 16
// rows. They run when the warp waits for them, as late as they may; what they read must be the same
// as when they started. Source: PTX ISA, wgmma.mma_async and "Asynchronous Warpgroup Level Matrix
// Shared Memory Layout".
#include <algorithm>

#include "fragments.h"
#include "opcodes.h"

namespace kvcal::ptx {
namespace {

constexpr int kColumns = 64, kSums = 32, kChunk = 8;
constexpr uint64_t kSwizzle128 = 1;  ///< bits 62 and 63 of a descriptor

/// Where the operands behind the sums are, with a in four registers, and with a described.
struct Operands {
  int b, adds, transposed_a, transposed_b;  ///< transposed_a: -1 in registers
};
constexpr Operands kWithRegisters{36, 37, -1, 40}, kWithDescriptor{33, 34, 37, 38};
constexpr int kFirstA = 32, kWordsOfA = 4;

/// Reads a matrix of `outer` rows (a) or columns (b) × 16 that a descriptor names, in chunks of
/// eight elements: along the depth, or along outer where it is transposed.
std::vector<uint16_t> described_elements(const Warp& warp, const Instruction& instruction,
                                         uint64_t descriptor, int outer_begin, int outer_count,
                                         bool transposed, bool has_started) {
  if (descriptor >> 62 != kSwizzle128)
    stop(warp, instruction, "a descriptor is not of the swizzle of 128 bytes: " + hex(descriptor));
  if ((descriptor >> 49 & 7) != 0)
    stop(warp, instruction, "a descriptor has a base offset: " + hex(descriptor));
  const auto field = [&](int bit) {
    return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4;
  };
  const uint32_t start = field(0), leading = field(16), stride = field(32);
  std::vector<uint16_t> elements(static_cast<size_t>(outer_count * kDepth));
  const auto read_chunk = [&](uint32_t outer, uint32_t k, uint16_t* to) {
    // Eight rows of 128 bytes are an atom; stride leads to the next eight rows, leading to the next
    // 64 elements of a row.
    const uint32_t row = transposed ? k : outer, column = transposed ? outer : k;
    const uint32_t plain =
        start + row / 8 * stride + row % 8 * 128 + column / 64 * leading + column % 64 * 2;
    const uint32_t swizzled = plain ^ (plain >> 7 & 7) << 4;
    std::memcpy(
        to, warp.block().shared.read_by_product(warp, instruction, swizzled, 16, has_started), 16);
  };
  for (int outer = 0; outer < outer_count; outer += transposed ? kChunk : 1)
    for (int k = 0; k < kDepth; k += transposed ? 1 : kChunk) {
      uint16_t chunk[kChunk];
      read_chunk(static_cast<uint32_t>(outer_begin + outer), static_cast<uint32_t>(k), chunk);
      for (int i = 0; i < kChunk; ++i)
        elements[static_cast<size_t>(transposed ? (outer + i) * kDepth + k
                                                : outer * kDepth + k + i)] = chunk[i];
    }
  return elements;
}

const Operands& operands_of(bool is_described) {
  return is_described ? kWithDescriptor : kWithRegisters;
}

/// What a product reads of shared memory: b's 64 columns, then this warp's rows of a if described.
std::vector<uint16_t> elements_of(const Warp& warp, const AsyncProduct& product, bool is_described,
                                  bool has_started) {
  const Instruction& instruction = *product.instruction;
  const Operands& where = operands_of(is_described);
  const auto is_set = [&](int operand) {
    return warp.words(instruction.operands[operand])[0] != 0;
  };
  std::vector<uint16_t> elements = described_elements(warp, instruction, product.b, 0, kColumns,
                                                      is_set(where.transposed_b), has_started);
  if (is_described) {
    const std::vector<uint16_t> rows =
        described_elements(warp, instruction, product.a, warp.id() % 4 * kRows, kRows,
                           is_set(where.transposed_a), has_started);
    elements.insert(elements.end(), rows.begin(), rows.end());
  }
  return elements;
}

/// The value of a register that must be the same in all lanes.
uint64_t uniform(const Warp& warp, const Instruction& instruction, int operand) {
  const uint64_t* const values = warp.longs(instruction.operands[operand]);
  if (std::any_of(values, values + kLanes, [&](uint64_t value) { return value != values[0]; }))
    stop(warp, instruction, "a descriptor is not the same in all lanes");
  return values[0];
}

/// The registers that a product must find as they were: a, and the sums unless a product under way
/// changes them.
std::vector<uint32_t> registers_of(const Warp& warp, const Instruction& instruction,
                                   bool is_described, bool with_sums) {
  std::vector<uint32_t> values;
  const auto take = [&](int operand) {
    const uint32_t* const words = warp.words(instruction.operands[operand]);
    values.insert(values.end(), words, words + kLanes);
  };
  if (!is_described)
    for (int i = 0; i < kWordsOfA; ++i) take(kFirstA + i);
  if (with_sums)
    for (int i = 0; i < kSums; ++i) take(i);
  return values;
}

bool adds_to_same_sums(const Warp& warp, const Instruction& instruction) {
  const auto is_same = [&](const AsyncProduct& other) {
    return other.instruction->operands[0] == instruction.operands[0];
  };
  const AsyncProducts& products = warp.products;
  return std::ranges::any_of(products.open, is_same) ||
         std::ranges::any_of(products.committed, [&](const auto& group) {
           return std::ranges::any_of(group, is_same);
         });
}

template <bool kIsDescribed>
void start_product(Warp& warp, const Instruction& instruction, uint32_t) {
  const Operands& where = operands_of(kIsDescribed);
  if (!warp.products.is_fenced)
    stop(warp, instruction, "a product without wgmma.fence since the registers were written");
  AsyncProduct product;
  product.instruction = &instruction;
  product.b = uniform(warp, instruction, where.b);
  if (kIsDescribed) product.a = uniform(warp, instruction, kFirstA);
  for (const int scale : {where.adds + 1, where.adds + 2})
    if (warp.words(instruction.operands[scale])[0] != 1)
      stop(warp, instruction, "the judge knows products without negated factors only");
  const uint32_t adds = warp.mask(instruction.operands[where.adds]);
  if (adds != 0 && adds != kAllLanes)
    stop(warp, instruction, "scale-d is not the same in all lanes");
  warp.block().check_warpgroup(warp, instruction, product.a, product.b);
  product.elements = elements_of(warp, product, kIsDescribed, false);
  product.registers = registers_of(warp, instruction, kIsDescribed,
                                   adds != 0 && !adds_to_same_sums(warp, instruction));
  warp.products.open.push_back(std::move(product));
}

/// Ends the program where a product's operands are not what they were when it started.
void check_unchanged(const Warp& warp, const AsyncProduct& product, bool is_described) {
  const Instruction& instruction = *product.instruction;
  if (elements_of(warp, product, is_described, true) != product.elements)
    stop(warp, instruction, "shared memory changed while a product read it");
  const size_t of_a = is_described ? 0 : kWordsOfA * kLanes;
  const bool with_sums = product.registers.size() > of_a;
  if (registers_of(warp, instruction, is_described, with_sums) != product.registers)
    stop(warp, instruction, "registers of a product changed before it was awaited");
}

template <class Format>
void finish_product(const Warp& warp, const AsyncProduct& product, bool is_described) {
  check_unchanged(warp, product, is_described);
  const Slot* const operands = product.instruction->operands;
  const std::vector<uint16_t>& elements = product.elements;
  const FactorA a = factor_a<Format>([&](int word, int lane) {
    if (!is_described) return warp.words(operands[kFirstA + word])[lane];
    const int row = lane / 4 + word % 2 * 8, k = lane % 4 * 2 + word / 2 * 8;
    const auto at = static_cast<size_t>((kColumns + row) * kDepth + k);
    return static_cast<uint32_t>(elements[at + 1]) << 16 | elements[at];
  });
  static thread_local double b[kDepth][kColumns], sums[kRows][kColumns];
  for (int column = 0; column < kColumns; ++column)
    for (int k = 0; k < kDepth; ++k)
      b[k][column] = Format::number(elements[static_cast<size_t>(column * kDepth + k)]);
  const bool adds = (warp.mask(operands[operands_of(is_described).adds]) & 1) != 0;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kSums; ++i)
      sums[sum_row(lane, i)][sum_column(lane, i)] =
          adds ? double{std::bit_cast<float>(warp.words(operands[i])[lane])} : 0.0;
  add_product(sums, a, b);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kSums; ++i)
      warp.words(operands[i])[lane] =
          std::bit_cast<uint32_t>(static_cast<float>(sums[sum_row(lane, i)][sum_column(lane, i)]));
}

void finish(const Warp& warp, const AsyncProduct& product) {
  const Instruction& instruction = *product.instruction;
  const bool is_described = instruction.operand_count == kWithDescriptor.transposed_b + 1;
  if (instruction.text.find(".bf16.bf16") != std::string_view::npos)
    finish_product<BFloat>(warp, product, is_described);
  else
    finish_product<Half>(warp, product, is_described);
}

/// wgmma.wait_group: operand is the number of groups that may stay under way.
void await_products(Warp& warp, const Instruction& instruction, uint32_t) {
  AsyncProducts& products = warp.products;
  const uint32_t left = warp.words(instruction.operands[0])[0];
  while (products.committed.size() > left) {
    for (const AsyncProduct& product : products.committed.front()) finish(warp, product);
    products.committed.erase(products.committed.begin());
  }
  if (products.committed.empty()) products.is_fenced = false;
}

void add_product_opcodes(Opcodes& opcodes) {
  const std::string sums(kSums, 'W');
  for (const std::string type : {"f16", "bf16"}) {
    const std::string name = "wgmma.mma_async.sync.aligned.m64n64k16.f32." + type + "." + type;
    opcodes.add(name, &start_product<false>, sums + "wwwwlpwww", Flow::kAligned);
    opcodes.add(name + ".described", &start_product<true>, sums + "llpwwww", Flow::kAligned);
  }
}

}  // namespace

void Block::check_warpgroup(Warp& warp, const Instruction& instruction, uint64_t a, uint64_t b) {
  warpgroups.resize((thread_count() + 4 * kLanes - 1) / (4 * kLanes));
  auto& started = warpgroups[static_cast<size_t>(warp.id() / 4)];
  const StartedProduct mine{&instruction, a, b};
  const size_t index = warp.products.started++;
  if (index == started.size())
    started.push_back(mine);
  else if (started[index] != mine)
    stop(warp, instruction, "the warps of a warpgroup start different products");
}

void add_warpgroup_opcodes(Opcodes& opcodes) {
  add_product_opcodes(opcodes);
  opcodes.add(
      "wgmma.fence.sync.aligned",
      [](Warp& warp, const Instruction&, uint32_t) { warp.products.is_fenced = true; }, "",
      Flow::kAligned);
  opcodes.add(
      "wgmma.commit_group.sync.aligned",
      [](Warp& warp, const Instruction&, uint32_t) {
        warp.products.committed.push_back(std::move(warp.products.open));
        warp.products.open.clear();
      },
      "", Flow::kAligned);
  opcodes.add("wgmma.wait_group.sync.aligned", &await_products, "w", Flow::kAligned);
}

}  // namespace kvcal::ptx
