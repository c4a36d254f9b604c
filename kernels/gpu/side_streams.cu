#include "kernels/gpu/side_streams.h"

#include <algorithm>

namespace kvcal::gpu {

void SideStreams::run(Stream& main, size_t parts,
                      const std::function<void(size_t, Stream&)>& issue) {
  const size_t used = std::min(parts, sides_.size() + 1) - (parts > 0 ? 1 : 0);
  begun_.record(main);
  for (size_t i = 0; i < used; ++i) sides_[i].stream.wait(begun_);
  const auto join = [&] {
    for (size_t i = 0; i < used; ++i) {
      sides_[i].done.record(sides_[i].stream);
      main.wait(sides_[i].done);
    }
  };
  try {
    for (size_t part = 0; part < parts; ++part) {
      const size_t turn = part % (used + 1);
      issue(part, turn == 0 ? main : sides_[turn - 1].stream);
    }
  } catch (...) {
    join();  // what was issued still uses the memory that main's later work may take
    throw;
  }
  join();
}

}  // namespace kvcal::gpu
