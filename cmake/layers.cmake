# add_layer(name [DIR dir] [DEPENDS layers...] [PUBLIC_LIBS targets...] [PRIVATE targets...])
# A layer is its folder: sources are globbed. Each layer gets an include root that holds one symbolic
# link named after it, so #include "quant/scale.h" resolves only in targets that link quant.
function(add_layer name)
  cmake_parse_arguments(L "" "DIR" "DEPENDS;PUBLIC_LIBS;PRIVATE" ${ARGN})
  if(NOT L_DIR)
    set(L_DIR lib/${name})
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${L_DIR}/*.cc)
  set(root ${KVCAL_INCLUDE_ROOT}/${name})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${name})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${L_DIR} ${root}/${name} SYMBOLIC)
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${root})
    target_link_libraries(${name} PUBLIC ${L_DEPENDS} ${L_PUBLIC_LIBS} PRIVATE kvcal_warnings ${L_PRIVATE})
    set_target_properties(${name} PROPERTIES OUTPUT_NAME kvcal_${name} POSITION_INDEPENDENT_CODE ON)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${root})
    target_link_libraries(${name} INTERFACE ${L_DEPENDS} ${L_PUBLIC_LIBS})
  endif()
endfunction()

# embed_text(layer folder header namespace): the style sheets and scripts of a folder become constants of the layer,
# which its header declares: report.css is kReportCss.
function(embed_text layer folder header namespace)
  file(GLOB assets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.css ${PROJECT_SOURCE_DIR}/${folder}/*.js)
  set(output ${PROJECT_BINARY_DIR}/include/generated/${layer}_assets.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake)
  list(JOIN assets "|" files)
  add_custom_command(OUTPUT ${output} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DHEADER=${header} -DNAMESPACE=${namespace} -DFILES=${files} -P ${script}
    DEPENDS ${assets} ${script})
  target_sources(${layer} PRIVATE ${output})
endfunction()

# add_layer_test(name [LIBS more...]): tests/<name>/**/*_test.cc, and what they share in tests/<name>/support,
# become one executable that links only that layer, which proves that the layer stands alone.
function(add_layer_test name)
  cmake_parse_arguments(T "" "" "LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${name}/support/*.cc)
  add_executable(test_${name} ${sources} ${support})
  target_link_libraries(test_${name} PRIVATE kvcal_warnings test_support ${name} ${T_LIBS})
  # Assertions expand to much code; optimizing it costs minutes and gains nothing.
  target_compile_options(test_${name} PRIVATE -O1)
  add_test(NAME ${name} COMMAND test_${name} "~[slow]~[.]")
  set_tests_properties(${name} PROPERTIES TIMEOUT 900)
  add_slow_test(${name} "${sources}")
endfunction()

# The [slow] cases of a layer's tests, run once and labelled so; they get the demo model by environment.
function(add_slow_test name sources)
  foreach(source ${sources})
    file(STRINGS ${source} slow_lines REGEX "\\[slow\\]")
    if(slow_lines)
      add_test(NAME ${name}_slow COMMAND test_${name} "[slow]")
      set_tests_properties(${name}_slow PROPERTIES LABELS slow TIMEOUT 1800
        ENVIRONMENT "KVCAL_DEMO_MODEL=${PROJECT_SOURCE_DIR}/build/demo/SmolLM2-135M-Instruct")
      return()
    endif()
  endforeach()
endfunction()
