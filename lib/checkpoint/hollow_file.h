#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace kvcal {

namespace fs = std::filesystem;

// A hollow file is a *.safetensors file with its header, its size and the bytes of some tensors;
// the others are holes, which take no space on disks with sparse files. It answers every question
// but those about values. Lists beside the files say which tensors have bytes, so that no hole is
// taken for zeros: views of others are hollow (TensorView::is_hollow).

/// Writes a file of so many bytes that begins with head, the header with its length; head is cut to
/// size. Throws Error.
void write_hollow_file(const fs::path& path, std::string_view head, uint64_t size);
/// Puts bytes at their place in a file. Throws Error.
void fill_hollow_file(const fs::path& path, uint64_t offset, std::string_view bytes);

/// Names of tensors, by name of the file.
using PresentTensors = std::map<std::string, std::set<std::string, std::less<>>, std::less<>>;
/// Says which tensors of a folder's files have bytes: none of a file that is not named. Throws
/// Error.
void write_present_tensors(const fs::path& folder, const PresentTensors& tensors);
/// Those of a file; nullopt: it is not hollow. Throws Error for a list that cannot be read.
std::optional<std::set<std::string, std::less<>>> present_tensors(const fs::path& file);

}  // namespace kvcal
