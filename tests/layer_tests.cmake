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
  foreach(source ${sources})
    add_test_file(${name} ${program} ${source})
  endforeach()
  if(name STREQUAL forward)
    add_family_tests(${program})
  endif()
endfunction()

# family_names(names): the families of the rows in lib/family/families, which registries_test compares with the program's.
function(family_names names)
  file(GLOB lineages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lib/family/families/*.cc)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lineages})
  set(found)
  foreach(lineage ${lineages})
    file(STRINGS ${lineage} rows REGEX "^    {\"[a-z0-9_]+\", \"[a-z0-9_]*\",")
    list(TRANSFORM rows REPLACE "^    {\"([a-z0-9_]+)\".*" "\\1")
    list(APPEND found ${rows})
  endforeach()
  list(SORT found)
  set(${names} ${found} PARENT_SCOPE)
endfunction()

# add_family_tests(program): a case for each family, which checks its fixtures, and its entry of ctest, forward.<family>.
# Every case has a file's name of its own, so that whoever runs tests file by file runs them family by family.
function(add_family_tests program)
  family_names(names)
  set(text "#include \"forward/support/family_check.h\"\n#include \"support/catch.h\"\n")
  foreach(family ${names})
    string(APPEND text "#line 1 \"${family}_test.cc\"\n"
           "TEST_CASE(\"${family}: as in transformers\") { kvcal::test::check_family(\"${family}\"); }\n")
    add_layer_entry(forward ${program} ${family}_test)
  endforeach()
  set(source ${CMAKE_CURRENT_BINARY_DIR}/families_test.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
  target_sources(${program} PRIVATE ${source})
endfunction()

# add_layer_entry(name program file): the entry of the cases of a file that are not slow.
function(add_layer_entry name program file)
  string(REGEX REPLACE "_test$" "" entry ${name}.${file})
  set(labels ${name})
  if(program STREQUAL test_gpu)
    list(APPEND labels gpu)
  endif()
  add_test(NAME ${entry} COMMAND ${program} --filenames-as-tags "[#${file}]~[slow]~[.]")
  set_tests_properties(${entry} PROPERTIES TIMEOUT 1800 LABELS "${labels}")
endfunction()

# add_test_file(name program source): the entries of one file of a layer's test program. Catch2 knows the cases of a file by
# the tag "#file name".
function(add_test_file name program source)
  get_filename_component(file ${source} NAME_WE)
  file(READ ${source} text)
  string(REGEX MATCHALL "(TEST_CASE|SCENARIO)[A-Z_]*\\([^{]*" cases "${text}")
  set(others ${cases})
  list(FILTER others EXCLUDE REGEX "\\[slow\\]|\\[\\.")
  if(others)
    add_layer_entry(${name} ${program} ${file})
  endif()
  # They get the demo model by environment.
  list(FILTER cases INCLUDE REGEX "\\[slow\\]")
  if(cases)
    string(REGEX REPLACE "_test$" "" entry ${name}.${file})
    set(labels ${name} slow)
    if(program STREQUAL test_gpu)
      list(APPEND labels gpu)
    endif()
    add_test(NAME ${entry}_slow COMMAND ${program} --filenames-as-tags "[#${file}][slow]")
    set_tests_properties(${entry}_slow PROPERTIES LABELS "${labels}" TIMEOUT 3600 COST 100
      ENVIRONMENT "KVCAL_DEMO_MODEL=${PROJECT_SOURCE_DIR}/build/demo/SmolLM2-135M-Instruct")
  endif()
endfunction()
