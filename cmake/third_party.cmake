# Every library we take, each behind one target, so that versions differ in one place only.
# third_party(name target headers...): a library as add_layer's THIRD_PARTY names it, the target that a layer links, and
# how its includes begin, up to the first slash. Target -: there is nothing to link.
function(third_party name target)
  set_property(GLOBAL PROPERTY KVCAL_THIRD_PARTY_${name} ${target})
  foreach(header ${ARGN})
    set_property(GLOBAL APPEND_STRING PROPERTY KVCAL_THIRD_PARTY_HEADERS "set(library_of_${header} ${name})\n")
  endforeach()
endfunction()

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(PkgConfig REQUIRED)

find_package(yaml-cpp REQUIRED)
add_library(kvcal_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(kvcal_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(kvcal_yaml INTERFACE yaml-cpp)
endif()

pkg_check_modules(kvcal_pc_sentencepiece REQUIRED IMPORTED_TARGET sentencepiece)
add_library(kvcal_sentencepiece INTERFACE)
target_link_libraries(kvcal_sentencepiece INTERFACE PkgConfig::kvcal_pc_sentencepiece)

pkg_check_modules(kvcal_pc_pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
add_library(kvcal_pcre2 INTERFACE)
target_link_libraries(kvcal_pcre2 INTERFACE PkgConfig::kvcal_pc_pcre2)

pkg_check_modules(kvcal_pc_utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
add_library(kvcal_utf8proc INTERFACE)
target_link_libraries(kvcal_utf8proc INTERFACE PkgConfig::kvcal_pc_utf8proc)

find_package(dnnl REQUIRED CONFIG)
add_library(kvcal_dnnl INTERFACE)
target_link_libraries(kvcal_dnnl INTERFACE DNNL::dnnl)

pkg_check_modules(kvcal_pc_highway REQUIRED IMPORTED_TARGET libhwy)
add_library(kvcal_highway INTERFACE)
target_link_libraries(kvcal_highway INTERFACE PkgConfig::kvcal_pc_highway)

find_package(ZLIB REQUIRED)

pkg_check_modules(kvcal_pc_zstd REQUIRED IMPORTED_TARGET libzstd)
add_library(kvcal_zstd INTERFACE)
target_link_libraries(kvcal_zstd INTERFACE PkgConfig::kvcal_pc_zstd)

include(arrow)

# Several machines: OpenMPI, MPICH or another. lib/ranks/mpi_runtime.cc is the only file that includes it.
set(KVCAL_MPI AUTO CACHE STRING "MPI for calibration on several machines: AUTO (where there is one), ON or OFF")
set_property(CACHE KVCAL_MPI PROPERTY STRINGS AUTO ON OFF)
add_library(kvcal_mpi INTERFACE)
if(NOT KVCAL_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  if(KVCAL_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  if(MPI_CXX_FOUND)
    target_link_libraries(kvcal_mpi INTERFACE MPI::MPI_CXX)
    target_compile_definitions(kvcal_mpi INTERFACE KVCAL_HAS_MPI=1)
  endif()
endif()

third_party(nlohmann_json nlohmann_json::nlohmann_json nlohmann)
third_party(OpenSSL OpenSSL::Crypto openssl)
third_party(xxHash - xxhash.h)
third_party(threads Threads::Threads)
third_party(OpenMP OpenMP::OpenMP_CXX omp.h)
third_party(yaml-cpp kvcal_yaml yaml-cpp)
third_party(sentencepiece kvcal_sentencepiece)
third_party(PCRE2 kvcal_pcre2 pcre2.h)
third_party(utf8proc kvcal_utf8proc utf8proc.h)
third_party(oneDNN kvcal_dnnl oneapi dnnl)
third_party(Highway kvcal_highway hwy)
third_party(zlib ZLIB::ZLIB zlib.h)
third_party(zstd kvcal_zstd zstd.h)
third_party(Arrow kvcal_arrow arrow parquet)
third_party(MPI kvcal_mpi mpi.h)
third_party(GPU - cuda_runtime.h cublasLt.h hip)  # gpu.cmake links it
third_party(CLI11 CLI11::CLI11 CLI)
