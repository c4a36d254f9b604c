// Included before Highway by every vector source: which instruction sets are compiled. Arrays of
// vectors need sizes known to the compiler, so no SVE; what lies between the named x86 steps would
// only make the build longer.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
