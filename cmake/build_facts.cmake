# What `kvcal --version --json` says of the build (tools/help.cc). Included behind third_party and gpu.
# The commit is told, not found: a configured folder outlives commits, and a build of a source archive must not differ.
set(KVCAL_COMMIT "" CACHE STRING "Commit that is built, for kvcal --version --json")
set(KVCAL_BUILT_WITH_ARROW ${KVCAL_HAS_ARROW})
set(KVCAL_BUILT_WITH_CURL ${KVCAL_HAS_CURL})
set(KVCAL_BUILT_WITH_MPI OFF)
if(TARGET MPI::MPI_CXX)
  set(KVCAL_BUILT_WITH_MPI ON)
endif()

# Name and version of each library, as this build found it.
set(_libraries
  "oneDNN|${dnnl_VERSION}" "highway|${kvcal_pc_highway_VERSION}" "sentencepiece|${kvcal_pc_sentencepiece_VERSION}"
  "pcre2|${kvcal_pc_pcre2_VERSION}" "utf8proc|${kvcal_pc_utf8proc_VERSION}" "yaml-cpp|${yaml-cpp_VERSION}"
  "openssl|${OPENSSL_VERSION}" "zlib|${ZLIB_VERSION_STRING}" "zstd|${kvcal_pc_zstd_VERSION}"
  "curl|${kvcal_pc_curl_VERSION}" "nlohmann_json|${nlohmann_json_VERSION}" "CLI11|${CLI11_VERSION}")
set(KVCAL_LIBRARIES "")
foreach(_library ${_libraries})
  string(REPLACE "|" "\", \"" _library "${_library}")
  string(APPEND KVCAL_LIBRARIES "{\"${_library}\"}, ")
endforeach()
string(REGEX REPLACE ", $" "" KVCAL_LIBRARIES "${KVCAL_LIBRARIES}")
string(TOLOWER "${KVCAL_GPU}" KVCAL_GPU_LANGUAGE)
configure_file(${PROJECT_SOURCE_DIR}/cmake/build_facts.h.in ${PROJECT_BINARY_DIR}/include/generated/kvcal_build_facts.h @ONLY)
