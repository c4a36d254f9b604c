#pragma once

#include <string>

// What the judge says when a kernel or its caller does what a device would not bear.
namespace kvcal::ptx {

class Warp;
struct Instruction;

/// Ends the program with a message.
[[noreturn]] void stop(const std::string& message);
/// The same, naming kernel, line of the PTX, instruction, block and warp.
[[noreturn]] void stop(const Warp& warp, const Instruction& instruction, const std::string& what);

/// Tells what a call is refused for, on stderr; the caller gets an error code.
void note(const std::string& message);

/// "0x7f00" of an address.
std::string hex(uint64_t value);

}  // namespace kvcal::ptx
