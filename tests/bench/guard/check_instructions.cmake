# Counts a workload's instructions under callgrind and compares them with expected_instructions.txt:
#   cmake -DVALGRIND=<path> -DPROGRAM=<instructions> -DEXPECTED=<table> -DSCRATCH=<folder>
#         -DWORKLOAD=<name>;... [-DUPDATE=ON] -P check_instructions.cmake
# More than TOLERANCE percent above the expected number is an error; as far below, a note. The tolerance is for other
# compilers and other processors; the same build differs by less than 0.1 %. UPDATE writes the table anew.
cmake_minimum_required(VERSION 3.22)
set(TOLERANCE 15)

function(count workload result)
  set(file ${SCRATCH}/callgrind.${workload}.out)
  # valgrind shows an AVX2 processor to whoever asks, wherever there is one beneath: vector code and oneDNN use that.
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env OMP_NUM_THREADS=1 ${VALGRIND} --tool=callgrind --callgrind-out-file=${file}
            --collect-atstart=no "--toggle-collect=kvcal_counted_workload*" ${PROGRAM} ${workload}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${workload} ended with ${status} under callgrind:\n${output}")
  endif()
  file(STRINGS ${file} total REGEX "^(totals|summary): [0-9]+" LIMIT_COUNT 1)
  if(NOT total MATCHES "([0-9]+)" OR CMAKE_MATCH_1 LESS 1000)
    message(FATAL_ERROR "${workload}: callgrind counted '${total}', expected thousands of instructions")
  endif()
  math(EXPR thousands "${CMAKE_MATCH_1} / 1000")
  set(${result} ${thousands} PARENT_SCOPE)
endfunction()

set(failures "")
set(table "")
foreach(workload ${WORKLOAD})
  count(${workload} counted)
  string(APPEND table "${workload} ${counted}\n")
  if(UPDATE)
    message(STATUS "${workload}: ${counted} thousand instructions")
    continue()
  endif()
  file(STRINGS ${EXPECTED} line REGEX "^${workload} [0-9]+$")
  if(NOT line MATCHES " ([0-9]+)$")
    message(FATAL_ERROR "${EXPECTED} has no line '${workload} NUMBER'")
  endif()
  set(expected ${CMAKE_MATCH_1})
  math(EXPR tenths "1000 * (${counted} - ${expected}) / ${expected}")
  math(EXPR limit "10 * ${TOLERANCE}")
  message(STATUS "${workload}: ${counted} thousand instructions, expected ${expected}: ${tenths} per mille more")
  if(tenths GREATER limit)
    list(APPEND failures "${workload} takes ${counted} thousand instructions, expected ${expected} within ${TOLERANCE} %")
  elseif(tenths LESS -${limit})
    message(STATUS "${workload} became faster: build the target update_instructions and commit the table")
  endif()
endforeach()
if(UPDATE)
  file(STRINGS ${EXPECTED} comments REGEX "^#")
  list(JOIN comments "\n" comments)
  file(WRITE ${EXPECTED} "${comments}\n${table}")
endif()
if(failures)
  list(JOIN failures "\n  " failures)
  message(FATAL_ERROR "${failures}\nIf this is meant, build the target update_instructions and say why in the commit.")
endif()
