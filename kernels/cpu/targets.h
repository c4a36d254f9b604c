// Selects the compiled instruction sets; every vector source includes it before Highway. Arrays of
// vectors need sizes known to the compiler, so SVE is out; x86 sets between the named ones would
// only lengthen the build.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
