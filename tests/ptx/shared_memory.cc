#include "shared_memory.h"

#include <algorithm>
#include <string>

#include "program.h"
#include "report.h"
#include "warp.h"

namespace kvcal::ptx {

void SharedMemory::reset(uint32_t end) {
  end_ = end;
  ++epoch_;  // accesses of earlier blocks are of the past
  bytes_.assign(end - kSharedBase, std::byte{0xff});
  accesses_.resize((end - kSharedBase + kGranule - 1) / kGranule);
  for (Accesses& accesses : accesses_) accesses.is_unpublished = false;
  unpublished_.clear();
}

void SharedMemory::stop_at(const Warp& warp, const Instruction& instruction, uint32_t address,
                           uint32_t bytes) const {
  if (address % bytes != 0)
    stop(warp, instruction,
         "shared address " + hex(address) + " is not aligned to " + std::to_string(bytes));
  stop(warp, instruction,
       "shared access out of bounds: " + std::to_string(bytes) + " bytes at " + hex(address) +
           ", the block has " + hex(kSharedBase) + " to " + hex(end_));
}

void SharedMemory::check_atomics(const Warp& warp, const Instruction& instruction,
                                 const Accesses& accesses) const {
  if (accesses.atomic_epoch == epoch_ && (accesses.atomic_users & ~(1u << warp.id())) != 0)
    stop(warp, instruction,
         "race: another warp changed this shared memory atomically since the block's last barrier");
}

void SharedMemory::check_readers(const Warp& warp, const Instruction& instruction,
                                 const Accesses& accesses) const {
  if (accesses.read_epoch == epoch_ && (accesses.readers & ~(1u << warp.id())) != 0)
    stop(warp, instruction, "race: shared memory is written that another warp read");
}

void SharedMemory::note_write(const Warp& warp, const Instruction& instruction, Accesses& accesses,
                              int lane) {
  const auto id = static_cast<uint8_t>(warp.id());
  if (accesses.write_epoch == epoch_ && accesses.writer != id)
    stop(warp, instruction,
         "race: warp " + std::to_string(accesses.writer) + " wrote this shared memory, too");
  check_readers(warp, instruction, accesses);
  check_atomics(warp, instruction, accesses);
  accesses.write_epoch = epoch_;
  accesses.write_sync = warp.sync_epoch();
  accesses.writer = id;
  accesses.writer_lane = static_cast<uint8_t>(lane);
  if (!accesses.is_unpublished) {
    accesses.is_unpublished = true;
    unpublished_.push_back(static_cast<uint32_t>(&accesses - accesses_.data()));
  }
}

void SharedMemory::note_read(const Warp& warp, const Instruction& instruction, Accesses& accesses,
                             int lane) {
  if (accesses.write_epoch == epoch_) {
    if (accesses.writer != warp.id())
      stop(warp, instruction,
           "race: warp " + std::to_string(accesses.writer) +
               " wrote this shared memory since the block's last barrier");
    if (accesses.writer_lane != lane && accesses.write_sync == warp.sync_epoch())
      stop(warp, instruction,
           "race: lane " + std::to_string(accesses.writer_lane) +
               " wrote this shared memory since the warp's last barrier");
  }
  check_atomics(warp, instruction, accesses);
  if (accesses.read_epoch != epoch_) {
    accesses.read_epoch = epoch_;
    accesses.readers = 0;
  }
  accesses.readers |= 1u << warp.id();
}

std::byte* SharedMemory::access_atomically(const Warp& warp, const Instruction& instruction,
                                           uint32_t address, uint32_t bytes) {
  check(warp, instruction, address, bytes);
  for (uint32_t i = 0; i < bytes / kGranule; ++i) {
    Accesses& accesses = accesses_[(address - kSharedBase) / kGranule + i];
    if (accesses.write_epoch == epoch_ && accesses.writer != warp.id())
      stop(warp, instruction,
           "race: warp " + std::to_string(accesses.writer) +
               " wrote this shared memory since the block's last barrier");
    check_readers(warp, instruction, accesses);
    if (accesses.atomic_epoch != epoch_) accesses.atomic_users = 0;
    accesses.atomic_epoch = epoch_;
    accesses.atomic_users |= 1u << warp.id();
  }
  return &bytes_[address - kSharedBase];
}

const std::byte* SharedMemory::read_by_product(const Warp& warp, const Instruction& instruction,
                                               uint32_t address, uint32_t bytes,
                                               bool has_started) const {
  check(warp, instruction, address, bytes);
  const uint32_t first = (address - kSharedBase) / kGranule;
  for (uint32_t i = first; i < first + bytes / kGranule; ++i) {
    const Accesses& accesses = accesses_[i];
    if (has_started && accesses.is_unpublished)
      stop(warp, instruction,
           "shared memory was written while a product may read it, at " + hex(address));
    if (accesses.is_unpublished)
      stop(warp, instruction,
           "a product reads shared memory that no fence.proxy.async published, at " + hex(address));
    if (accesses.write_epoch == epoch_ && accesses.writer != warp.id())
      stop(warp, instruction,
           "race: a product reads what warp " + std::to_string(accesses.writer) +
               " wrote since the block's last barrier");
  }
  return &bytes_[address - kSharedBase];
}

void SharedMemory::publish(int warp, uint32_t lanes) {
  std::erase_if(unpublished_, [&](uint32_t granule) {
    Accesses& accesses = accesses_[granule];
    if (accesses.writer != warp || (lanes >> accesses.writer_lane & 1) == 0) return false;
    accesses.is_unpublished = false;
    return true;
  });
}

}  // namespace kvcal::ptx
