#include "kernels/cpu/gemm.h"

#include <array>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <omp.h>

#include "core/error.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/scratch.h"
#include "quant/half.h"

namespace kvcal::cpu {

namespace {

using Memory = dnnl::memory;

constexpr std::array<int64_t, 5> kHeights{1, 4, 16, 64, Gemm::kTallest};
/// The height whose order of sums counts: low enough to decode with, high enough to fill an AMX
/// tile.
constexpr int64_t kJudge = 16;

Memory::data_type data_type_of(ComputeType type) {
  KVCAL_CHECK(type != ComputeType::kFloat16);
  return type == ComputeType::kBFloat16 ? Memory::data_type::bf16 : Memory::data_type::f32;
}

Memory::desc row_major(int64_t rows, int64_t columns, Memory::data_type type) {
  return {{rows, columns}, type, Memory::dims{columns, 1}};
}

/// What the threads of a library share, and what each has of its own.
struct Session {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;
  std::vector<Scratch> scratchpads;
};

struct Tile {
  dnnl::matmul primitive;
  Memory::desc x, out, scratchpad;
  bool is_exact = true;  ///< gives kJudge's bytes
};

/// Values in [-1, 1) of type, the same in every run.
std::vector<std::byte> noise(int64_t count, ComputeType type) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * bytes_of(type));
  uint32_t state = 12345;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    const BF16 half = to_bf16(value);
    const void* element = type == ComputeType::kBFloat16 ? static_cast<const void*>(&half) : &value;
    std::memcpy(bytes.data() + static_cast<size_t>(i) * bytes_of(type), element, bytes_of(type));
  }
  return bytes;
}

}  // namespace

struct Panel {
  Memory memory;
};
void FreePanel::operator()(Panel* panel) const {
  delete panel;
}

struct Gemm::State {
  PanelShape shape;
  Session& session;
  Memory::desc panel;
  std::array<Tile, kHeights.size()> tiles;
};

Gemm::Gemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemm::~Gemm() = default;
const PanelShape& Gemm::shape() const {
  return state_->shape;
}
size_t Gemm::panel_bytes() const {
  return state_->panel.get_size();
}

PanelPointer Gemm::pack(const void* rows, std::byte* storage, int thread) const {
  const auto& [shape, session, desc, tiles] = *state_;
  // Row-major [width, depth] is column-major [depth, width]; oneDNN only reads it.
  Memory source(
      {{shape.depth, shape.width}, data_type_of(shape.type), Memory::dims{1, shape.depth}},
      session.engine, const_cast<void*>(rows));
  PanelPointer packed(new Panel{Memory(desc, session.engine, storage)});
  dnnl::reorder(source, packed->memory)
      .execute(session.streams[static_cast<size_t>(thread)], source, packed->memory);
  return packed;
}

int64_t Gemm::height_for(int64_t rows) const {
  for (size_t i = kHeights.size(); kHeights[--i] >= kJudge;)
    if (state_->tiles[i].is_exact && kHeights[i] <= rows) return kHeights[i];
  size_t i = 0;  // fewer than kJudge: the next one up, padded
  while (!state_->tiles[i].is_exact || kHeights[i] < rows) ++i;
  return kHeights[i];
}

void Gemm::run(int64_t height, const void* x, const Panel& panel, float* out, int thread) const {
  size_t index = 0;
  while (kHeights[index] != height) ++index;
  Session& session = state_->session;
  const Tile& tile = state_->tiles[index];
  std::byte* working_memory = session.scratchpads[static_cast<size_t>(thread)].get<std::byte>(
      static_cast<int64_t>(tile.scratchpad.get_size()));
  tile.primitive.execute(
      session.streams[static_cast<size_t>(thread)],
      {{DNNL_ARG_SRC, Memory(tile.x, session.engine, const_cast<void*>(x))},
       {DNNL_ARG_WEIGHTS, panel.memory},
       {DNNL_ARG_DST, Memory(tile.out, session.engine, out)},
       {DNNL_ARG_SCRATCHPAD, Memory(tile.scratchpad, session.engine, working_memory)}});
}

struct GemmLibrary::State {
  Session session;
  std::map<PanelShape, std::unique_ptr<Gemm>> gemms;

  /// panel: null lets oneDNN choose the layout.
  Tile make_tile(const PanelShape& shape, int64_t height, Memory::desc& panel) {
    const Memory::data_type type = data_type_of(shape.type);
    Tile tile{.primitive = {},
              .x = row_major(height, shape.depth, type),
              .out = row_major(height, shape.width, Memory::data_type::f32),
              .scratchpad = {}};
    const auto desc = describe_matmul(session.engine, tile.x, panel, tile.out);
    tile.primitive = dnnl::matmul(desc);
    tile.scratchpad = desc.scratchpad_desc();
    panel = desc.weights_desc();
    return tile;
  }

  /// oneDNN's name of its matmul of type, empty where it has none.
  std::string implementation_of(ComputeType type) const {
    use_one_thread_here();
    const Memory::data_type data_type = data_type_of(type);
    try {
      return describe_matmul(session.engine, row_major(Gemm::kTallest, 64, data_type),
                             {{64, 64}, data_type, Memory::format_tag::any},
                             row_major(Gemm::kTallest, 64, Memory::data_type::f32))
          .impl_info_str();
    } catch (const dnnl::error&) {
      return "";
    }
  }

  std::unique_ptr<Gemm::State> make_gemm(const PanelShape& shape) {
    std::unique_ptr<Gemm::State> gemm(new Gemm::State{shape, session, {}, {}});
    gemm->panel = {{shape.depth, shape.width}, data_type_of(shape.type), Memory::format_tag::any};
    for (size_t i = kHeights.size(); i-- > 0;)  // the tallest chooses the panel's layout
      gemm->tiles[i] = make_tile(shape, kHeights[i], gemm->panel);
    return gemm;
  }

  /// Marks the heights whose sums run in another order than kJudge's.
  void compare_heights(Gemm& gemm) {
    const PanelShape& shape = gemm.shape();
    constexpr int64_t kRows = Gemm::kTallest;
    Scratch storage, expected_memory, actual_memory;
    const auto weight = noise(shape.width * shape.depth, shape.type);
    const auto x = noise(kRows * shape.depth, shape.type);
    std::byte* panel_memory = storage.get<std::byte>(static_cast<int64_t>(gemm.panel_bytes()));
    const PanelPointer panel = gemm.pack(weight.data(), panel_memory, 0);
    auto* expected = expected_memory.get<float>(kRows * shape.width);
    auto* actual = actual_memory.get<float>(kRows * shape.width);
    const auto run = [&](int64_t height, float* out) {
      for (int64_t row = 0; row < kRows; row += height)
        gemm.run(height, x.data() + static_cast<size_t>(row * shape.depth) * bytes_of(shape.type),
                 *panel, out + row * shape.width, 0);
    };
    run(kJudge, expected);
    for (size_t i = 0; i < kHeights.size(); ++i) {
      run(kHeights[i], actual);
      gemm.state_->tiles[i].is_exact =
          std::memcmp(actual, expected, static_cast<size_t>(kRows * shape.width) * sizeof(float)) ==
          0;
    }
  }
};

GemmLibrary::GemmLibrary(int num_threads) : state_(std::make_unique<State>()) {
  Session& session = state_->session;
  for (int i = 0; i < num_threads; ++i) session.streams.emplace_back(session.engine);
  session.scratchpads.resize(static_cast<size_t>(num_threads));
}
GemmLibrary::~GemmLibrary() = default;

bool GemmLibrary::supports(ComputeType type) const {
  return type != ComputeType::kFloat16 && !state_->implementation_of(type).empty();
}

std::string GemmLibrary::implementation() const {
  const std::string name = state_->implementation_of(ComputeType::kBFloat16);
  return name.empty() ? state_->implementation_of(ComputeType::kFloat32) : name;
}

// Without instructions for bfloat16 the name tells of none ("gemm:jit").
bool GemmLibrary::has_fast_bfloat16() const {
  return implementation().find("bf16") != std::string::npos;
}

const Gemm& GemmLibrary::get(const PanelShape& shape) {
  std::unique_ptr<Gemm>& gemm = state_->gemms[shape];
  if (!gemm) {
    try {
      gemm.reset(new Gemm(state_->make_gemm(shape)));
      state_->compare_heights(*gemm);
    } catch (const dnnl::error& error) {
      gemm.reset();
      fail("oneDNN cannot multiply ", name_of(shape.type), " by [", shape.width, ", ", shape.depth,
           "]: ", error.what());
    }
  }
  return *gemm;
}

void use_one_thread_here() {
  omp_set_num_threads(1);
}

}  // namespace kvcal::cpu
