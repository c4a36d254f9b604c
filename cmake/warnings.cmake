# kvcal_warnings: the flags every target of ours is compiled with. No fast-math anywhere: NaN checks
# must mean what they say, and CPU and GPU must give the same bytes.
add_library(kvcal_warnings INTERFACE)
# Multiply-add is fused where we write it, nowhere else.
target_compile_options(kvcal_warnings INTERFACE -ffp-contract=off)
target_compile_options(kvcal_warnings INTERFACE -Wall -Wextra -Wconversion $<$<BOOL:${KVCAL_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives from inlined std::string and std::vector code at -O3.
  target_compile_options(kvcal_warnings INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(KVCAL_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
