#include "module.h"

#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "device_memory.h"
#include "report.h"

namespace kvcal::ptx {
namespace {

/// Source: fatbinary_section.h of the CUDA toolkit, and what nvcc 12.8 and 13 write.
struct Wrapper {
  int32_t magic, version;
  const std::byte* data;
};
struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  ///< behind the header
};
struct FatEntry {
  uint16_t kind, attributes;
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, options;
  uint16_t minor, major;
  uint32_t capability;  ///< 90
  uint32_t name, name_bytes;
  uint64_t flags;
};
constexpr uint32_t kFatMagic = 0xba55ed50;
constexpr uint16_t kPtxKind = 1;
constexpr uint64_t kCompressedFlags = 0x2000 | 0x8000;  ///< by LZ4, by Zstandard

std::string target_of(const std::string& text) {
  const size_t at = text.find(".target ");
  if (at == text.npos) return "";
  const size_t begin = at + std::string_view(".target ").size();
  return text.substr(begin, text.find_first_of(",\n\r ", begin) - begin);
}

/// How well code fits the chip; 0 where it does not run.
int fit_of(const std::string& target, uint32_t capability) {
  const auto mine = static_cast<uint32_t>(chip());
  if (target.ends_with('a')) return capability == mine ? 1000 : 0;
  return capability <= mine ? static_cast<int>(capability) : 0;
}

}  // namespace

int chip() {
  static const int number = [] {
    const char* const asked = std::getenv("KVCAL_PTX_CHIP");
    const std::string name = asked ? asked : "90";
    if (name != "80" && name != "90") stop("KVCAL_PTX_CHIP is '" + name + "', expected 80 or 90");
    return std::stoi(name);
  }();
  return number;
}

std::string ptx_of(const void* fat_binary) {
  const std::byte* at = static_cast<const Wrapper*>(fat_binary)->data;
  FatHeader header;
  std::memcpy(&header, at, sizeof header);
  if (header.magic != kFatMagic) stop("a fat binary has an unknown magic " + hex(header.magic));
  at += header.header_bytes;
  const std::byte* const end = at + header.bytes;
  std::string best;
  int best_fit = 0;
  while (at < end) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.kind == kPtxKind) {
      if ((entry.flags & kCompressedFlags) != 0)
        stop("the program's PTX is compressed: build it with nvcc -Xfatbin=-compress=false");
      const auto* const begin = reinterpret_cast<const char*>(at + entry.header_bytes);
      std::string text(begin, strnlen(begin, entry.bytes));
      const int fit = fit_of(target_of(text), entry.capability);
      if (fit > best_fit) {
        best_fit = fit;
        best = std::move(text);
      }
    }
    at += entry.header_bytes + entry.bytes;
  }
  if (best_fit == 0) stop("a fat binary has no PTX for sm_" + std::to_string(chip()));
  return best;
}

void mutate(std::string& text) {
  const char* const asked = std::getenv("KVCAL_PTX_MUTATION");
  if (!asked) return;
  const std::vector<std::string_view> lines = split(asked, '\n');
  if (lines.size() != 4) stop("KVCAL_PTX_MUTATION has not four lines");
  const std::string_view kernel = lines[0], from = lines[1], to = lines[2], which = lines[3];
  int places = 0;
  for (size_t at = text.find(".entry"); at != text.npos; at = text.find(".entry", at + 1)) {
    const size_t name_end = text.find('(', at);
    if (text.substr(at, name_end - at).find(kernel) == text.npos) continue;
    // With what stands before the body, such as bounds of launches.
    size_t found = text.find(from, text.find(')', name_end));
    for (int index = 0; found < text.find("\n}", name_end); ++index) {
      const bool is_meant = which == "all" || which == std::to_string(index);
      if (is_meant) text.replace(found, from.size(), to);
      places += is_meant ? 1 : 0;
      found = text.find(from, found + (is_meant ? to.size() : from.size()));
    }
  }
  if (places > 0) note("mutated: " + std::to_string(places) + " places");
}

void Module::load() {
  if (is_loaded_) return;
  is_loaded_ = true;
  text_ = ptx_of(fat_binary_);
  mutate(text_);
  const ModuleText parsed = parse_module(text_);
  for (const Entry& entry : parsed.entries) entries_.emplace(entry.name, entry);
  for (const Declaration& variable : parsed.variables) {
    if (variable.space == ".shared") {
      scope_.shared.emplace(variable.name, variable);
      continue;
    }
    if (!variable.initial.empty())
      fail("PTX: the variable ", variable.name,
           " has initial values, which the judge does not know");
    variables_.push_back(std::make_unique<std::byte[]>(variable.bytes()));  // zeros
    const auto begin = reinterpret_cast<uint64_t>(variables_.back().get());
    add_allocation({begin, begin + variable.bytes(), true});
    scope_.globals.emplace(variable.name, begin);
  }
}

const Kernel& Module::parse(const Entry& entry) {
  std::unique_ptr<Kernel>& kernel = kernels_[std::string(entry.name)];
  if (!kernel) kernel = std::make_unique<Kernel>(parse_kernel(entry, scope_));
  return *kernel;
}

const Kernel& Module::kernel(const std::string& name) {
  const std::lock_guard lock(mutex_);
  try {
    load();
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) stop("the program's PTX has no kernel " + name);
    return parse(entry->second);
  } catch (const Error& error) {
    stop(error.what());
  }
}

Parsed Module::parse_all() {
  Parsed parsed;
  {
    const std::lock_guard lock(mutex_);
    load();
  }
  for (const auto& [name, entry] : entries_) {
    parsed.kernels.push_back(name);
    parsed.instructions += kernel(name).code.size();
  }
  return parsed;
}

}  // namespace kvcal::ptx
