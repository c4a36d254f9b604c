# What a build folder or a machine is called must not reach the program: two builds of the same sources with the same
# compiler are the same bytes (tests/packaging/reproducible.sh). Included before the layers, since it sets their flags.
# Off by default where programs are debugged: a debugger finds sources by the paths it is told.
set(_map_paths ON)
if(NOT CMAKE_BUILD_TYPE MATCHES "^(Release|MinSizeRel)$")
  set(_map_paths OFF)
endif()
option(KVCAL_MAP_PATHS "Name sources by their paths in the repository in what is built" ${_map_paths})
if(KVCAL_MAP_PATHS)
  # The last one that fits is taken: a build folder may lie in the source folder.
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>"
                      "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_BINARY_DIR}/=build/>"
                      "$<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${KVCAL_INCLUDE_ROOT}/=include/>")
endif()
