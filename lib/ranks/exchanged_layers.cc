#include "ranks/exchanged_layers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fcntl.h>

#include "core/hash.h"
#include "core/interrupt.h"
#include "core/pages.h"
#include "ranks/communicator.h"

namespace kvcal {
namespace {

constexpr size_t kHashedAtOnce = size_t{8} << 20;

FileExtent extent_of(const ModelDir& model_dir, const TensorView& tensor) {
  const auto page = static_cast<uint64_t>(PageSubstitute::page_size());
  for (size_t shard = 0; shard < model_dir.shards().size(); ++shard) {
    const auto file = model_dir.shards()[shard].file().bytes();
    if (tensor.bytes.data() < file.data() || tensor.bytes.data() >= file.data() + file.size())
      continue;
    const auto begin = static_cast<uint64_t>(tensor.bytes.data() - file.data());
    return {.shard = shard,
            .begin = begin / page * page,
            .end = (begin + tensor.bytes.size() + page - 1) / page * page};
  }
  KVCAL_CHECK(false);
  return {};
}

}  // namespace

std::vector<FileExtent> layer_extents(const ModelDir& model_dir, const Weights& weights,
                                      int64_t layer) {
  std::vector<FileExtent> all;
  for (const auto& tensor : weights.tensors(layer))
    if (!tensor.view.bytes.empty() && !is_looked_up(tensor.role))
      all.push_back(extent_of(model_dir, tensor.view));
  std::ranges::sort(all, {}, [](const FileExtent& one) { return std::pair(one.shard, one.begin); });
  std::vector<FileExtent> merged;
  for (const FileExtent& one : all) {
    if (!merged.empty() && merged.back().shard == one.shard && one.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, one.end);
    } else {
      merged.push_back(one);
    }
  }
  return merged;
}

uint64_t layer_hash(const Weights& weights, int64_t layer) {
  std::array<uint64_t, 2> state{1, 0};
  for (const auto& tensor : weights.tensors(layer)) {
    if (is_looked_up(tensor.role)) continue;
    const auto bytes = tensor.view.bytes;
    for (size_t at = 0; at < bytes.size(); at += kHashedAtOnce) {
      throw_if_interrupted();
      const auto part = bytes.subspan(at, std::min(kHashedAtOnce, bytes.size() - at));
      state[1] = hash64(part);
      state[0] = hash64(std::as_bytes(std::span(state)));
      release_pages(part);
    }
  }
  return std::max(state[0], uint64_t{1});
}

uint64_t RankLayerBytes::hash(int64_t layer) const {
  const std::lock_guard lock(hash_mutex_);
  const auto found = hashes_.find(layer);
  return found == hashes_.end() ? 0 : found->second;
}

void RankLayerBytes::set_hash(int64_t layer, uint64_t hash) {
  const std::lock_guard lock(hash_mutex_);
  hashes_[layer] = hash;
}

void LocalLayers::bring(int64_t layer) {
  const std::lock_guard lock(mutex_);
  if (hash(layer) != 0) return;
  set_hash(layer, layer_hash(weights_, layer));
  for (const auto& tensor : weights_.tensors(layer))
    if (!is_looked_up(tensor.role)) bytes_read_ += tensor.view.bytes.size();
}

namespace {

/// Bytes that all ranks read and exchange at a time. As many are resident, and as many again are
/// being read.
constexpr size_t kExchangedAtOnce = size_t{32} << 20;

uint64_t total_bytes(const std::vector<FileExtent>& extents) {
  uint64_t bytes = 0;
  for (const FileExtent& extent : extents) bytes += extent.end - extent.begin;
  return bytes;
}

/// Calls body(part of an extent, its offset in all) for the range [begin, end) of the concatenated
/// extents.
template <class Body>
void for_each_part(const std::vector<FileExtent>& extents, uint64_t begin, uint64_t end,
                   const Body& body) {
  uint64_t at = 0;
  for (const FileExtent& extent : extents) {
    const uint64_t size = extent.end - extent.begin;
    const uint64_t first = std::max(begin, at), last = std::min(end, at + size);
    if (first < last)
      body(FileExtent{.shard = extent.shard,
                      .begin = extent.begin + (first - at),
                      .end = extent.begin + (last - at)},
           first);
    at += size;
  }
}

}  // namespace

ExchangedLayers::ExchangedLayers(std::unique_ptr<Communicator> ranks, const ModelDir& model_dir,
                                 const Weights& weights)
    : ranks_(std::move(ranks)), model_dir_(model_dir), weights_(weights) {
  for (const SafetensorsFile& shard : model_dir.shards()) {
    files_.push_back(std::make_unique<Descriptor>(shard.file().path(), O_RDONLY));
    if (files_.back()->get() < 0) fail_errno(shard.file().path(), "cannot open");
  }
}

ExchangedLayers::~ExchangedLayers() {
  if (leaving_.valid()) leaving_.wait();
  for (const auto& [layer, held] : held_) restore(held);
}

MemoryPart ExchangedLayers::share(uint64_t bytes, int rank) const {
  const uint64_t page = PageSubstitute::page_size(), pages = bytes / page;
  const auto ranks = static_cast<uint64_t>(ranks_->size()), own = static_cast<uint64_t>(rank);
  const uint64_t begin = pages * own / ranks * page, end = pages * (own + 1) / ranks * page;
  return {.begin = begin, .size = end - begin};
}

void ExchangedLayers::will_need(int64_t layer) {
  if (layer >= weights_.num_layers()) return;
  const auto extents = layer_extents(model_dir_, weights_, layer);
  const MemoryPart own = share(total_bytes(extents), ranks_->rank());
  for_each_part(extents, own.begin, own.begin + own.size, [&](const FileExtent& part, uint64_t) {
    throw_if_interrupted();
    ::posix_fadvise(files_[part.shard]->get(), static_cast<off_t>(part.begin),
                    static_cast<off_t>(part.end - part.begin), POSIX_FADV_WILLNEED);
  });
}

void ExchangedLayers::agree_on(const Step& own) {
  const std::vector<Step> all = gather_values(*ranks_, own);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Step& step = all[rank];
    if (step.layer == own.layer && step.bytes == own.bytes) continue;
    has_left_ = true;
    if (step.layer == kLeaves || own.layer == kLeaves) throw RankLeft();
    fail("layer ", own.layer, " of ", own.bytes, " bytes is to be read together, but ",
         ranks_->name_of(static_cast<int>(rank)), " has layer ", step.layer, " of ", step.bytes);
  }
}

void ExchangedLayers::read(const std::vector<FileExtent>& extents, uint64_t begin,
                           std::span<std::byte> into) {
  for_each_part(extents, begin, begin + into.size(), [&](const FileExtent& part, uint64_t at) {
    const MappedFile& file = model_dir_.shards()[part.shard].file();
    // Bytes past the end of a file stay zero, as in its mapping.
    const uint64_t end = std::min<uint64_t>(part.end, file.bytes().size());
    if (part.begin >= end) return;
    const auto wanted = into.subspan(at - begin, end - part.begin);
    const size_t got = read_at(files_[part.shard]->get(), wanted, part.begin, file.path());
    if (got < wanted.size())
      fail(file.path().string(), ": ends ", wanted.size() - got, " bytes early");
    bytes_read_ += got;
  });
}

void ExchangedLayers::fill(const LayerPages& held) {
  const std::span<std::byte> memory = held.pages->memory();
  std::vector<MemoryPart> shares;
  size_t longest = 0;
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    shares.push_back(share(memory.size(), rank));
    longest = std::max(longest, shares.back().size);
  }
  const size_t page = PageSubstitute::page_size();
  const size_t step = std::max<size_t>(1, kExchangedAtOnce / shares.size() / page) * page;
  const auto slice = [step](const MemoryPart& all, size_t offset) {
    const size_t begin = std::min(offset, all.size);
    return MemoryPart{.begin = all.begin + begin, .size = std::min(step, all.size - begin)};
  };
  std::string error;  // told when all ranks can hear it
  const auto read_slice = [&](size_t offset) {
    const MemoryPart own = slice(shares[static_cast<size_t>(ranks_->rank())], offset);
    try {
      if (error.empty()) read(held.extents, own.begin, memory.subspan(own.begin, own.size));
    } catch (const std::exception& found) {
      error = found.what();
    }
  };
  read_slice(0);
  for (size_t offset = 0; offset < longest; offset += step) {
    std::future<void> next;  // is read while this one travels
    if (offset + step < longest) next = std::async(std::launch::async, read_slice, offset + step);
    std::vector<MemoryPart> parts;
    for (const MemoryPart& all : shares) parts.push_back(slice(all, offset));
    ranks_->exchange(memory, parts);
    for (const MemoryPart& part : parts) release_pages(memory.subspan(part.begin, part.size));
  }
  const auto all = ranks_->all_gather(std::as_bytes(std::span(error)));
  if (std::ranges::all_of(all, [](const auto& text) { return text.empty(); })) return;
  has_left_ = true;
  if (error.empty()) throw RankLeft();
  fail(error);
}

void ExchangedLayers::bring(int64_t layer) {
  const std::lock_guard lock(mutex_);
  if (has_left_) throw RankLeft();
  LayerPages held{.extents = layer_extents(model_dir_, weights_, layer), .pages = {}};
  const uint64_t bytes = total_bytes(held.extents);
  std::optional<Error> no_memory;
  try {
    if (bytes > 0) held.pages = std::make_unique<PageSubstitute>(bytes);
  } catch (const Error& error) {
    no_memory = error;
  }
  if (no_memory) {  // the others are told, and this rank says why
    try {
      agree_on({.layer = kLeaves, .bytes = bytes});
    } catch (const RankLeft&) {
    }
    has_left_ = true;
    throw *no_memory;
  }
  agree_on({.layer = layer, .bytes = bytes});
  if (held.pages) {
    fill(held);
    const std::span<const std::byte> memory = held.pages->memory();
    for_each_part(held.extents, 0, bytes, [&](const FileExtent& part, uint64_t at) {
      held.pages->place(memory.subspan(at, part.end - part.begin),
                        model_dir_.shards()[part.shard].file().bytes().data() + part.begin);
    });
  }
  held_.emplace(layer, std::move(held));
  set_hash(layer, layer_hash(weights_, layer));
}

void ExchangedLayers::restore(const LayerPages& held) noexcept {
  for (const FileExtent& part : held.extents)
    restore_pages(files_[part.shard]->get(), part.begin,
                  model_dir_.shards()[part.shard].file().bytes().data() + part.begin,
                  part.end - part.begin);
}

void ExchangedLayers::drop(int64_t layer) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(layer);
  if (found == held_.end()) return;
  restore(found->second);
  held_.erase(found);
}

void ExchangedLayers::leave() noexcept {
  try {
    const std::lock_guard lock(leave_mutex_);
    if (leaving_.valid()) return;
    // The others learn it when they bring their next layer, or leave too; nobody waits for it here.
    leaving_ = std::async(std::launch::async, [this] {
      try {
        const std::lock_guard exchange_lock(mutex_);
        if (!has_left_) agree_on({.layer = kLeaves, .bytes = 0});
        has_left_ = true;
      } catch (const std::exception&) {
        // The others know, or are gone.
      }
    });
  } catch (const std::exception&) {
    // Without a thread the others wait until this rank's own error ends them.
  }
}

uint64_t ExchangedLayers::largest_bytes(const ModelDir& model_dir, const Weights& weights) {
  uint64_t largest = 0;
  for (int64_t layer = 0; layer < weights.num_layers(); ++layer)
    largest = std::max(largest, total_bytes(layer_extents(model_dir, weights, layer)));
  return largest;
}

}  // namespace kvcal
