#pragma once

// Intrinsics of x86-64, for a source that uses AVX-512 or AMX by itself. GCC 12 sees an
// uninitialized variable in its own intrinsics where a function has them inlined, so the warnings
// stay off to the end of the source.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif
