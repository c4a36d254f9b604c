# add_layer_test(name [LIBS more...]): tests/<name>/**/*_test.cc, and what they share in tests/<name>/support, become one
# executable that links only that layer, which proves that the layer stands alone. Each file is an entry of ctest,
# <name>.<file without _test.cc>; its [slow] cases are a second entry, <name>.<file>_slow.
# In builds for a GPU the layers that run on it share one executable, test_gpu: the kernels are linked once, and carried once
# to a machine without compilers (tools/gpu_check.sh).
set(KVCAL_GPU_TESTED_LAYERS kernels forward calib eval)
function(add_layer_test name)
  cmake_parse_arguments(PARSE_ARGV 1 T "" "" "LIBS")
  refuse_unparsed(add_layer_test ${name} "${T_UNPARSED_ARGUMENTS}" "")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/support/*.cc)
  set(program test_${name})
  if(KVCAL_GPU AND name IN_LIST KVCAL_GPU_TESTED_LAYERS)
    set(program test_gpu)
  endif()
  if(NOT TARGET ${program})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE kvcal_warnings test_support)
    # Assertions expand to much code; optimizing it costs minutes and gains nothing.
    target_compile_options(${program} PRIVATE -O1)
  endif()
  target_sources(${program} PRIVATE ${sources} ${support})
  target_link_libraries(${program} PRIVATE ${name} ${T_LIBS})
  if(KVCAL_UNITY)  # a family's test is three lines below headers that take seconds
    set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
    set(alone ${sources} ${support})
    list(FILTER alone EXCLUDE REGEX "/families/")
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  foreach(source ${sources})
    add_test_file(${name} ${program} ${source})
  endforeach()
endfunction()

# add_test_file(name program source): the entries of one file of a layer's test program. Catch2 knows the cases of a file by
# the tag "#file name".
function(add_test_file name program source)
  get_filename_component(file ${source} NAME_WE)
  string(REGEX REPLACE "_test$" "" entry ${name}.${file})
  set(labels ${name})
  if(program STREQUAL test_gpu)
    list(APPEND labels gpu)
  endif()
  file(READ ${source} text)
  string(REGEX MATCHALL "(TEST_CASE|SCENARIO)[A-Z_]*\\([^{]*" cases "${text}")
  set(others ${cases})
  list(FILTER others EXCLUDE REGEX "\\[slow\\]|\\[\\.")
  if(others)
    add_test(NAME ${entry} COMMAND ${program} --filenames-as-tags "[#${file}]~[slow]~[.]")
    set_tests_properties(${entry} PROPERTIES TIMEOUT 1800 LABELS "${labels}")
  endif()
  # They get the demo model by environment.
  list(FILTER cases INCLUDE REGEX "\\[slow\\]")
  if(cases)
    add_test(NAME ${entry}_slow COMMAND ${program} --filenames-as-tags "[#${file}][slow]")
    set_tests_properties(${entry}_slow PROPERTIES LABELS "${labels};slow" TIMEOUT 3600 COST 100
      ENVIRONMENT "KVCAL_DEMO_MODEL=${PROJECT_SOURCE_DIR}/build/demo/SmolLM2-135M-Instruct")
  endif()
endfunction()
