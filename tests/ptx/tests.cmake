# Tests on the judge of PTX, labelled ptx: those of kernels and models that run on a device, for both chips; a calibration;
# and mutations of kernels, which the judge must report.
#   sm_80: blocks and warps in reverse order; products in kernels of our own
#   sm_90: in order; products in the stand-in of cuBLASLt; attention by warpgroups, too
set(ptx_environment KVCAL_REQUIRE_GPU=1 KVCAL_TEST_BACKENDS=gpu KVCAL_GPU_LIBRARY_PATH=$<TARGET_FILE:ptx_cublaslt>
                    KVCAL_PTX_THREADS=1)
set(ptx_of_80 KVCAL_PTX_CHIP=80 KVCAL_PTX_ORDER=reverse KVCAL_PTX_PRODUCTS=kernels)
set(ptx_of_90 KVCAL_PTX_CHIP=90)
set(ptx_of_wgmma KVCAL_PTX_CHIP=90 KVCAL_GPU_ATTENTION=wgmma)

function(add_ptx_test name variables)
  add_test(NAME ptx_${name} COMMAND ${ARGN})
  set_tests_properties(ptx_${name} PROPERTIES LABELS ptx TIMEOUT 1800 ENVIRONMENT "${ptx_environment};${variables}")
endfunction()

# The files of a layer whose cases run on a device, and whose names match; each family counts as a file.
function(add_ptx_files layer kind matching)
  if(layer STREQUAL forward)
    family_names(families)
    foreach(family ${families})
      if("${family}_test" MATCHES "${matching}")
        add_ptx_test(${kind}.forward.${family} "${ptx_of_${kind}}" test_gpu --filenames-as-tags "[#${family}_test]")
      endif()
    endforeach()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${layer}/*_test.cc)
  foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    file(READ ${source} text)
    string(REGEX MATCHALL "TEST_CASE\\([^{]*" cases "${text}")
    list(FILTER cases EXCLUDE REGEX "\\[slow\\]|\\[\\.|\\[kept_memory\\]")
    if(cases AND file MATCHES "${matching}" AND text MATCHES
       "for_each_backend|for_every_backend|for_each_device|backend_names|device_names|devices\\(\\)")
      string(REGEX REPLACE "_test$" "" entry ${file})
      add_ptx_test(${kind}.${layer}.${entry} "${ptx_of_${kind}}" test_gpu --filenames-as-tags
                   "[#${file}]~[slow]~[.]~[kept_memory]")
    endif()
  endforeach()
endfunction()

foreach(chip 80 90)
  add_ptx_test(parse_${chip} KVCAL_PTX_CHIP=${chip} ptx_parse_all)
  foreach(layer kernels forward calib eval)
    add_ptx_files(${layer} ${chip} ".")
  endforeach()
endforeach()
add_ptx_files(kernels wgmma "attention")
add_ptx_files(forward wgmma "^(llama|qwen3|gemma3)_test$")

foreach(kind 80 90 wgmma)
  add_ptx_test(calibrate_${kind} "${ptx_of_${kind}}" ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/calibrate.py
               $<TARGET_FILE:kvcal> llama qwen3 gemma2 mixtral)
endforeach()
add_ptx_test(mutations "" ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/mutations.py $<TARGET_FILE:test_gpu>
             $<TARGET_FILE:ptx_cublaslt>)

add_executable(test_ptx ${CMAKE_CURRENT_LIST_DIR}/numbers_test.cc)
target_link_libraries(test_ptx PRIVATE kvcal_warnings test_support)
target_compile_options(test_ptx PRIVATE -O1 -march=x86-64-v3)
add_ptx_test(numbers "" test_ptx)
