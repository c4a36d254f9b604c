# refuse_unparsed(function name unparsed missing): cmake_parse_arguments drops what it does not know without a word.
function(refuse_unparsed function name unparsed missing)
  if(NOT "${unparsed}" STREQUAL "")
    message(FATAL_ERROR "${function}(${name}): unknown argument '${unparsed}'")
  endif()
  if(NOT "${missing}" STREQUAL "")
    message(FATAL_ERROR "${function}(${name}): no value behind ${missing}")
  endif()
endfunction()

# The layers' record. One line a layer says where it lies, what it may include and link, and what it holds:
#   add_layer(name [DIR dir] [USES layers...] [THIRD_PARTY libraries...] [TESTED_WITH layers...] [UNITY] HOLDS "...")
# From that line come the static library, its include root, the rules of check_layers.cmake and the table in
# ARCHITECTURE.md, and the program of tests/<name>, which links the layer and those of TESTED_WITH. A layer is its
# folder: sources are globbed.
# Each layer gets an include root that holds one symbolic link named after it, so #include "quant/scale.h" resolves only
# in targets that link quant.
function(add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 L "UNITY" "DIR;HOLDS" "USES;THIRD_PARTY;TESTED_WITH")
  refuse_unparsed(add_layer "${name}" "${L_UNPARSED_ARGUMENTS}" "${L_KEYWORDS_MISSING_VALUES}")
  if(NOT L_DIR)
    set(L_DIR lib/${name})
  endif()
  set(KVCAL_LAYERS ${KVCAL_LAYERS} ${name} PARENT_SCOPE)
  set_property(GLOBAL PROPERTY KVCAL_TESTED_WITH_${name} ${L_TESTED_WITH})
  record_layer(${name} "${L_DIR}" "${L_USES}" "${L_THIRD_PARTY}" "${L_HOLDS}")
  foreach(library ${L_THIRD_PARTY})
    get_property(target GLOBAL PROPERTY KVCAL_THIRD_PARTY_${library})
    if(NOT target STREQUAL "-")
      list(APPEND libraries ${target})
    endif()
  endforeach()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${L_DIR}/*.cc)
  set(root ${KVCAL_INCLUDE_ROOT}/${name})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${name})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${L_DIR} ${root}/${name} SYMBOLIC)
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${root})
    target_link_libraries(${name} PUBLIC ${L_USES} PRIVATE kvcal_warnings ${libraries})
    set_target_properties(${name} PROPERTIES OUTPUT_NAME kvcal_${name} POSITION_INDEPENDENT_CODE ON)
    if(L_UNITY AND KVCAL_UNITY)
      set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
      # Files of these folders of the layer have the same private names.
      list(FILTER sources INCLUDE REGEX "/${L_DIR}/(.*/)?(families|observers|readers|writers)/")
      set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${root})
    target_link_libraries(${name} INTERFACE ${L_USES})
  endif()
endfunction()

# The record is a CMake script, which check_layers.cmake includes: <layer>_dir, _uses, _third_party, _holds.
set(KVCAL_LAYER_RECORD ${PROJECT_BINARY_DIR}/layers.cmake)
get_property(_third_party_headers GLOBAL PROPERTY KVCAL_THIRD_PARTY_HEADERS)
file(WRITE ${KVCAL_LAYER_RECORD} "${_third_party_headers}set(layers \"\")\n")
function(record_layer name dir uses third_party holds)
  if(NOT holds)
    message(FATAL_ERROR "add_layer(${name}): HOLDS is missing, expected one line for ARCHITECTURE.md")
  endif()
  foreach(library ${third_party})
    get_property(known GLOBAL PROPERTY KVCAL_THIRD_PARTY_${library} SET)
    if(NOT known)
      message(FATAL_ERROR "add_layer(${name}): third_party.cmake does not declare '${library}'")
    endif()
  endforeach()
  file(APPEND ${KVCAL_LAYER_RECORD} "list(APPEND layers ${name})\nset(${name}_dir ${dir})\nset(${name}_uses ${uses})\n"
       "set(${name}_third_party ${third_party})\nset(${name}_holds [==[${holds}]==])\n")
endfunction()

# embed_text(layer folder header namespace): the style sheets and scripts of a folder become constants of the layer,
# which its header declares: report.css is kReportCss.
function(embed_text layer folder header namespace)
  refuse_unparsed(embed_text ${layer} "${ARGN}" "")
  file(GLOB assets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.css ${PROJECT_SOURCE_DIR}/${folder}/*.js)
  embed_files(${layer} ${header} ${namespace} "" "${assets}")
endfunction()

# embed_table(layer table header patterns...): the files that match become rows of EmbeddedText, which the function
# kvcal::<table> of the header returns.
function(embed_table layer table header)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/)
  file(GLOB files CONFIGURE_DEPENDS ${ARGN})
  embed_files(${layer} ${header} kvcal ${table} "${files}")
endfunction()

function(embed_files layer header namespace table files)
  set(output ${PROJECT_BINARY_DIR}/include/generated/${layer}_assets.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake)
  list(JOIN files "|" joined)
  add_custom_command(OUTPUT ${output} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DHEADER=${header} -DNAMESPACE=${namespace} -DTABLE=${table}
            -DFILES=${joined} -P ${script}
    DEPENDS ${files} ${script})
  target_sources(${layer} PRIVATE ${output})
endfunction()
