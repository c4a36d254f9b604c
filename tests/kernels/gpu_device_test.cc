// What a backend with memory of its own promises beside its operations: copies, fetches beside the
// operations, recordings, matrices packed in another thread, errors.
#include <thread>

#include "kernels/gpu/chips.h"
#include "support/backends.h"
#include "support/near.h"

namespace kvcal {
namespace {

using Floats = std::vector<float>;

/// Every backend that is not in host memory.
template <class Body>
void for_each_device(const Body& body) {
  for (const std::string& name : test::device_names()) {
    const auto backend = test::make_backend(name);
    INFO(backend->description());
    body(*backend);
  }
}

std::span<const std::byte> bytes_of(const Floats& values) {
  return std::as_bytes(std::span(values));
}

TEST_CASE("device: copies take what the host holds now, in order with the operations") {
  for_each_device([](Backend& backend) {
    constexpr int64_t kCount = 3'000'001;  // several chunks of the staging memory
    Floats values = test::normal(kCount, 1);
    const Floats first = values;
    const Buffer x = backend.allocate(kCount * 4), out = backend.allocate(kCount * 4);
    backend.copy_in(bytes_of(values), x.data());
    std::fill(values.begin(), values.end(), 5.0f);  // too late to matter
    backend.fill_zero(out.data(), out.size());
    backend.add({.x = x.as<float>(), .count = kCount, .out = out.as<float>()});
    backend.copy_in(bytes_of(values), x.data());
    Floats result(kCount);
    backend.copy_out(out.data(), std::as_writable_bytes(std::span(result)));
    CHECK(test::same_bytes(result, first));
    backend.copy_out(x.data(), std::as_writable_bytes(std::span(result)));
    CHECK(test::same_bytes(result, values));
  });
}

// [kept_memory]: not for builds in which each block is used once (KVCAL_EXACT_DEVICE_MEMORY).
TEST_CASE("device: memory that was given back serves again, after its last use", "[kept_memory]") {
  for_each_device([](Backend& backend) {
    const Floats ones(1000, 1.0f);
    const Buffer sum = backend.allocate(4000);
    backend.fill_zero(sum.data(), 4000);
    std::byte* last = nullptr;
    int again = 0;
    for (int round = 0; round < 10; ++round) {
      const Buffer x = backend.allocate(4000);
      again += x.data() == last;
      last = x.data();
      backend.copy_in(bytes_of(ones), x.data());
      backend.add({.x = x.as<float>(), .count = 1000, .out = sum.as<float>()});
    }
    CHECK(again == 9);
    Floats result(1000);
    backend.copy_out(sum.data(), std::as_writable_bytes(std::span(result)));
    CHECK(result == Floats(1000, 10.0f));
  });
}

TEST_CASE("device: fetches and write-backs keep their order with the operations") {
  for_each_device([](Backend& backend) {
    constexpr int64_t kBatch = 500, kBatches = 5;
    const Buffer pinned = backend.allocate_pinned(kBatch * kBatches * 4);
    auto* host = pinned.as<float>();  // host memory
    for (int64_t i = 0; i < kBatch * kBatches; ++i) host[i] = static_cast<float>(i);
    const Buffer one = backend.allocate(kBatch * 4), two = backend.allocate(kBatch * 4);
    const Buffer ones = backend.allocate(kBatch * 4);
    backend.copy_in(bytes_of(Floats(kBatch, 1.0f)), ones.data());
    const auto bytes_at = [&](int64_t batch) { return pinned.data() + batch * kBatch * 4; };
    const auto buffer_of = [&](int64_t batch) -> const Buffer& {
      return batch % 2 == 0 ? one : two;
    };
    const auto span_of = [](const Buffer& buffer) {
      return std::span(buffer.data(), buffer.size());
    };
    for (int pass = 0; pass < 3; ++pass) {
      backend.fetch(bytes_at(0), span_of(one));
      for (int64_t batch = 0; batch < kBatches; ++batch) {
        backend.await_fetches();
        if (batch + 1 < kBatches) backend.fetch(bytes_at(batch + 1), span_of(buffer_of(batch + 1)));
        backend.add({.x = ones.as<float>(), .count = kBatch, .out = buffer_of(batch).as<float>()});
        backend.write_back(span_of(buffer_of(batch)), bytes_at(batch));
      }
    }
    int64_t wrong = 0;
    for (int64_t batch = 0; batch < kBatches; ++batch) {  // fetches see what was written back
      backend.fetch(bytes_at(batch), span_of(one));
      backend.await_fetches();
      Floats values(kBatch);
      backend.copy_out(one.data(), std::as_writable_bytes(std::span(values)));
      for (int64_t i = 0; i < kBatch; ++i)
        wrong += values[static_cast<size_t>(i)] != static_cast<float>(batch * kBatch + i + 3);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("device: a recording runs when it is played, as often as it is played") {
  for_each_device([](Backend& backend) {
    REQUIRE(backend.can_record());
    const Buffer x = backend.allocate(400), out = backend.allocate(400);
    backend.copy_in(bytes_of(Floats(100, 2.0f)), x.data());
    backend.fill_zero(out.data(), 400);
    const auto recording = backend.record(
        [&] { backend.add({.x = x.as<float>(), .count = 100, .out = out.as<float>()}); });
    const auto result = [&] {
      Floats values(100);
      backend.copy_out(out.data(), std::as_writable_bytes(std::span(values)));
      return values;
    };
    CHECK(result() == Floats(100, 0.0f));
    recording->play();
    recording->play();
    CHECK(result() == Floats(100, 4.0f));
    backend.copy_in(bytes_of(Floats(100, 3.0f)), x.data());  // it reads what stands there now
    recording->play();
    CHECK(result() == Floats(100, 7.0f));
  });
}

TEST_CASE("device: what cannot be recorded is refused, and nothing stays recorded") {
  for_each_device([](Backend& backend) {
    const Buffer x = backend.allocate(400), out = backend.allocate(400);
    Floats values(100, 2.0f);
    CHECK_THROWS(backend.record([&] { backend.allocate(400); }));
    CHECK_THROWS(backend.record([&] { backend.copy_in(bytes_of(values), x.data()); }));
    CHECK_THROWS(backend.record(
        [&] { backend.copy_out(x.data(), std::as_writable_bytes(std::span(values))); }));
    backend.copy_in(bytes_of(values), x.data());
    backend.fill_zero(out.data(), 400);
    backend.add({.x = x.as<float>(), .count = 100, .out = out.as<float>()});
    Floats result(100);
    backend.copy_out(out.data(), std::as_writable_bytes(std::span(result)));
    CHECK(result == Floats(100, 2.0f));
  });
}

TEST_CASE("device: a matrix is packed in another thread beside operations") {
  for_each_device([](Backend& backend) {
    REQUIRE(backend.packs_beside());
    constexpr int64_t kSize = 64;
    const Floats values = test::normal(kSize * kSize, 3);
    const TensorView view{"w", DType::kF32, Shape{kSize, kSize}, bytes_of(values)};
    const Buffer x = backend.allocate(kSize * 4), out = backend.allocate(kSize * kSize * 4);
    Floats row(kSize);
    row[5] = 1.0f;
    backend.copy_in(bytes_of(row), x.data());
    backend.fill_zero(out.data(), out.size());
    std::unique_ptr<PackedMatrix> weight;
    for (int round = 0; round < 4; ++round) {
      std::unique_ptr<PackedMatrix> next;
      std::thread packer([&] { next = backend.pack(std::span(&view, 1), ComputeType::kFloat32); });
      for (int i = 0; weight && i < 20; ++i)
        backend.matmul(
            {.x = x.data(), .weight = *weight, .rows = 1, .out = out.as<float>() + i * kSize});
      packer.join();
      weight = std::move(next);
    }
    Floats result(20 * kSize);
    backend.copy_out(out.data(), std::as_writable_bytes(std::span(result)));
    int64_t wrong = 0;
    for (int64_t i = 0; i < 20 * kSize; ++i)
      wrong += result[static_cast<size_t>(i)] != values[static_cast<size_t>(i % kSize * kSize + 5)];
    CHECK(wrong == 0);
  });
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("device: what cannot be had is told with what to do") {
  for_each_device([](Backend& backend) {
    const std::string message = message_of([&] { backend.allocate(size_t{1} << 46); });
    CHECK(message.starts_with("the device has no memory for 70368744177664 bytes ("));
    CHECK(message.find("are free): set a smaller --memory-limit or --batch-tokens") !=
          std::string::npos);
    CHECK(backend.free_memory().value_or(0) > 0);
    CHECK(backend.allocate(1000).size() == 1000);  // it goes on
  });
}

#ifdef KVCAL_TEST_SIMULATED_GPU

/// The simulated device is another chip until the end.
class OtherChip {
 public:
  explicit OtherChip(const std::string& architecture, size_t shared_bytes = size_t{227} << 10) {
    gpu::simulator::set_chip({architecture, shared_bytes});
  }
  ~OtherChip() { gpu::simulator::set_chip({}); }
};

TEST_CASE("device: an exception while a matrix is packed leaves no copy that writes later") {
  constexpr int64_t kRows = 48, kWidth = 64;
  const std::vector<uint8_t> codes(kRows * kWidth, 0x38);
  const Floats values(kRows * kWidth, 1.0f), scales{0.5f, 0.25f};
  const TensorView half{"w", DType::kF8E4M3, Shape{kRows / 2, kWidth},
                        std::as_bytes(std::span(codes)).first(codes.size() / 2)};
  const TensorView wide_half{"w", DType::kF32, Shape{kRows / 2, kWidth},
                             bytes_of(values).first(values.size() * 2)};
  const std::vector<TensorView> parts{half, half}, wide_parts{wide_half, wide_half};
  for (const bool is_fp8 : {true, false}) {
    INFO("FP8 " << is_fp8);
    const auto backend = test::make_backend("simulated");
    gpu::simulator::fail_copies_after(1);
    const std::string message = message_of([&] {
      if (is_fp8)
        backend->pack_fp8(parts, scales);
      else
        backend->pack(wide_parts, ComputeType::kFloat32);
    });
    gpu::simulator::fail_copies_after(-1);
    CHECK(message.find("the device is gone") != std::string::npos);
    const Floats written(codes.size() / (is_fp8 ? 4 : 1), 7.0f);  // into the matrix's block
    const Buffer reused = backend->allocate(written.size() * 4);
    backend->copy_in(bytes_of(written), reused.data());
    backend->record([] {});  // runs what is left of the operations, then of the uploads
    Floats found(written.size());
    backend->copy_out(reused.data(), std::as_writable_bytes(std::span(found)));
    CHECK(test::same_bytes(found, written));
  }
}

TEST_CASE("device: an error of a failed recording is not the next operation's") {
  const auto backend = test::make_backend("simulated");
  const Buffer x = backend->allocate(400), out = backend->allocate(400);
  backend->copy_in(bytes_of(Floats(100, 2.0f)), x.data());
  backend->fill_zero(out.data(), 400);
  CHECK(message_of([&] {
          backend->record([] {
            gpu::simulator::set_last_error("an operation that cannot be recorded");
            fail("the recording failed");
          });
        }) == "the recording failed");
  backend->add({.x = x.as<float>(), .count = 100, .out = out.as<float>()});
  Floats result(100);
  backend->copy_out(out.data(), std::as_writable_bytes(std::span(result)));
  CHECK(result == Floats(100, 2.0f));
}

TEST_CASE(
    "device: of an embedding on the device only the ids are copied, and the bytes are equal") {
  constexpr int64_t kRows = 50, kTokens = 300;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back(static_cast<int32_t>(i * 7 % kRows));
  for (const int64_t width : {1, 37, 64})
    for (const auto& [dtype, type] : {std::pair{DType::kF32, ComputeType::kFloat32},
                                      {DType::kF16, ComputeType::kFloat16},
                                      {DType::kBF16, ComputeType::kBFloat16}}) {
      INFO(dtype << " of " << width);
      const auto table = test::to_elements(test::normal(kRows * width, 4), type);
      const TensorView view{"embed_tokens.weight", dtype, Shape{kRows, width}, table};
      const auto backend = test::make_backend("simulated");
      const Buffer resident = backend->allocate(table.size());
      backend->copy_in(table, resident.data());
      const test::OnBackend<float> out(*backend,
                                       Floats(static_cast<size_t>(kTokens * width), 0.5f));
      const test::OnBackend<float> other(*backend, out.values());
      for (const bool accumulate : {true, false}) {
        EmbedArgs args{.table = view,
                       .ids = ids,
                       .multiplier = 0.3f,
                       .accumulate = accumulate,
                       .out = out.data()};
        backend->embed(args);
        args.out = other.data();
        args.resident = resident.data();
        gpu::simulator::count_anew();
        backend->embed(args);
        CHECK(gpu::simulator::counts().launches == 1);
        CHECK(gpu::simulator::counts().copied_bytes == ids.size() * sizeof(int32_t));
        CHECK(test::same_bytes(other.values(), out.values()));
      }
    }
}

TEST_CASE("device: a chip without code is refused, and says what to do") {
  const OtherChip chip("sm_75");
  const std::string message = message_of([] { test::make_backend("simulated"); });
  CHECK(message ==
        "device 0 (simulated device) cannot be used: its chip sm_75 is older than sm_80: use a "
        "newer device or --device cpu");
  CHECK(gpu_device_problem(0) == message);
}

TEST_CASE("device: a missing matrix library is a warning, once") {
  const auto backend = test::make_backend("simulated");
  CHECK(backend->take_warnings() == std::vector<std::string>{"plain loops were not found"});
  CHECK(backend->take_warnings().empty());
  gpu::simulator::set_vendor_matmul(true);
  CHECK(test::make_backend("simulated")->take_warnings().empty());
  gpu::simulator::set_vendor_matmul(false);
}

#endif

TEST_CASE("device: chips that this program has code for") {
  using gpu::chip_problem;
  constexpr std::string_view kAll = "80,86-real,89-real,90a-real,100-real,120";
  for (const char* chip : {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103",
                           "sm_110", "sm_120", "sm_121", "sm_130"}) {
    INFO(chip);
    CHECK(chip_problem(chip, kAll).empty());
  }
  for (const char* chip : {"sm_61", "sm_70", "sm_75"}) {
    INFO(chip);
    CHECK(chip_problem(chip, kAll) == "its chip " + std::string(chip) +
                                          " is older than sm_80: use a newer device or --device "
                                          "cpu");
  }
  CHECK(chip_problem("sm_80", "90-real") ==
        "this kvcal has no code for its chip sm_80, only for 90-real: build it with "
        "-DKVCAL_GPU_ARCHITECTURES=80, or use --device cpu");
}

TEST_CASE("device: machine code serves later chips of its generation, PTX all later ones") {
  using gpu::has_code_for;
  CHECK(has_code_for("sm_86", "86-real"));
  CHECK(has_code_for("sm_89", "86-real"));
  CHECK_FALSE(has_code_for("sm_80", "86-real"));
  CHECK_FALSE(has_code_for("sm_90", "86-real"));
  CHECK(has_code_for("sm_100", "86-virtual"));
  CHECK(has_code_for("sm_100", "86"));
  CHECK_FALSE(has_code_for("sm_80", "86"));
  CHECK(has_code_for("sm_90", "90a"));
  CHECK_FALSE(has_code_for("sm_100", "90a"));
  CHECK(has_code_for("sm_121", "120f"));
  CHECK_FALSE(has_code_for("sm_110", "100f-real"));
  CHECK(has_code_for("sm_75", "native"));
  CHECK(has_code_for("gfx942", "gfx90a,gfx942"));
  CHECK(has_code_for("gfx1201", "gfx12-generic"));
  CHECK_FALSE(has_code_for("gfx1100", "gfx90a,gfx942"));
  CHECK_FALSE(has_code_for("sm_90", "gfx90a"));
  CHECK_FALSE(has_code_for("sm_90", ""));
}

TEST_CASE("device: a driver that is too old is told with the one that is needed") {
  using gpu::no_device_text;
  CHECK(no_device_text("CUDA", {.driver = 12040, .runtime = 13000}, "insufficient") ==
        "no CUDA device can be used here (the driver is for CUDA 12.4, this kvcal for CUDA 13.0): "
        "install driver 580 or later, build kvcal with CUDA 12, or use --device cpu");
  CHECK(no_device_text("CUDA", {.driver = 11080, .runtime = 12080}, "insufficient") ==
        "no CUDA device can be used here (the driver is for CUDA 11.8, this kvcal for CUDA 12.8): "
        "install driver 525 or later, or use --device cpu");
  // A driver of the same generation serves: something else is wrong.
  CHECK(no_device_text("CUDA", {.driver = 12040, .runtime = 12080}, "out of order") ==
        "no CUDA device can be used here (out of order): install the driver, make the device "
        "visible to this process, or use --device cpu");
  CHECK(no_device_text("HIP", {}, "") ==
        "no HIP device can be used here: install the driver, make the device visible to this "
        "process, or use --device cpu");
}

TEST_CASE("device: chips and the FP8 they compute with") {
  using gpu::native_fp8_format;
  for (const char* chip : {"sm_89", "sm_90", "sm_100", "sm_120", "gfx950", "gfx1200", "gfx1201"}) {
    INFO(chip);
    CHECK(native_fp8_format(chip) == fp8::Format::kE4m3Fn);
  }
  for (const char* chip : {"gfx940", "gfx941", "gfx942"}) {
    INFO(chip);
    CHECK(native_fp8_format(chip) == fp8::Format::kE4m3Fnuz);
  }
  for (const char* chip : {"sm_80", "sm_86", "gfx908", "gfx90a", "gfx1100", "simulated", ""}) {
    INFO(chip);
    CHECK_FALSE(native_fp8_format(chip).has_value());
  }
}

TEST_CASE("chips: those whose wavefronts multiply matrices in bfloat16") {
  for (const std::string_view chip : {"gfx90a", "gfx90a:sramecc+:xnack-", "gfx942", "gfx950"})
    CHECK(gpu::has_wave_matrix(chip));
  // gfx908 has no products of four bfloat16 a lane; those of others have lanes of their own.
  for (const std::string_view chip : {"gfx906", "gfx908", "gfx1100", "gfx1200", "sm_90", ""})
    CHECK_FALSE(gpu::has_wave_matrix(chip));
}

}  // namespace
}  // namespace kvcal
