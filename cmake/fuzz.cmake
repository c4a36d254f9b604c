# Fuzz targets, tests/fuzz (docs/fuzzing.md). Included before the layers, so that those are instrumented.
option(KVCAL_FUZZ "Build the fuzz targets (needs clang)" OFF)
option(KVCAL_FUZZ_COVERAGE "Count lines for llvm-cov instead of looking for errors" OFF)
if(NOT KVCAL_FUZZ)
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "KVCAL_FUZZ needs clang, found ${CMAKE_CXX_COMPILER_ID}; set CMAKE_CXX_COMPILER to clang++")
endif()
if(KVCAL_FUZZ_COVERAGE)
  add_compile_options(-fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
else()
  # A number that does not fit the integer it becomes is undefined, too, though not part of "undefined".
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined,float-cast-overflow -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()
# operator[] of the standard containers checks its index.
add_compile_definitions(_GLIBCXX_ASSERTIONS)
# No parser runs kernels, and clang takes ten minutes to optimise one file of instrumented vectors.
cmake_language(DEFER CALL target_compile_options kernels PRIVATE -O0)
add_subdirectory(${PROJECT_SOURCE_DIR}/tests/fuzz)
