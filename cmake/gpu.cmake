# kernels/gpu for a real device: KVCAL_GPU is CUDA or HIP. The sources are the same.
#   KVCAL_GPU_ARCHITECTURES   such as "90a" or "gfx90a;gfx942"; empty: all we support that the compiler knows
#   KVCAL_PTX_JUDGE           no device runs the kernels, but tests/ptx, which executes the PTX that this build carries
set(KVCAL_GPU_ARCHITECTURES "" CACHE STRING "Chips to compile kernels/gpu for; empty: all supported ones")
option(KVCAL_PTX_JUDGE "With KVCAL_GPU=CUDA: programs run the kernels' PTX on the CPU (tests/ptx)" OFF)

macro(add_cuda_kernels)  # a macro: languages are enabled for the whole project
  if(KVCAL_PTX_JUDGE)
    # The oldest chip's instructions, and those of the chip that has the most of those that we use.
    set(CMAKE_CUDA_ARCHITECTURES "80-virtual;90a-virtual")
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # tests/ptx stands in for it
  elseif(KVCAL_GPU_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${KVCAL_GPU_ARCHITECTURES})
  else()
    # Code of two kinds stays as PTX too: for chips between the listed ones, and for later ones. 90a is 90 with products
    # of warpgroups, which no other chip has.
    set(CMAKE_CUDA_ARCHITECTURES "80;86-real;89-real;90a-real;100-real;120")
  endif()
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/bin REQUIRED)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} was found, 12.8 or later is needed")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/gpu/*.cu ${PROJECT_SOURCE_DIR}/kernels/gpu/cuda/*.cu)
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
  add_library(kernels_gpu STATIC ${sources})
  # No contraction and no fast math: sums and products are rounded as on the CPU.
  target_compile_options(kernels_gpu PRIVATE -std=c++20 --fmad=false -Xcompiler=-Wall,-Wextra
                                             $<$<BOOL:${KVCAL_WERROR}>:-Werror=all-warnings> --threads=2)
  if(KVCAL_PTX_JUDGE)
    target_compile_options(kernels_gpu PRIVATE -Xfatbin=-compress=false)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/gpu/device_memory.cu PROPERTIES
                                COMPILE_DEFINITIONS KVCAL_EXACT_DEVICE_MEMORY)
    target_link_libraries(kernels_gpu PUBLIC ptx_judge)
  endif()
  # The standard is named above: CMake 3.25 does not know which ones the newest nvcc has.
  set_target_properties(kernels_gpu PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}"
                                               CUDA_STANDARD_REQUIRED OFF CUDA_EXTENSIONS ON)
  list(JOIN CMAKE_CUDA_ARCHITECTURES "," chips)
  target_compile_definitions(kernels_gpu PRIVATE KVCAL_GPU_CHIPS="${chips}")
  target_link_libraries(kernels_gpu PRIVATE ${CMAKE_DL_LIBS})
endmacro()

# The architectures of a list that the compiler and its device libraries know.
function(find_hip_architectures result)
  set(known "")
  file(WRITE ${PROJECT_BINARY_DIR}/hip_probe.hip "#include <hip/hip_runtime.h>\n__global__ void probe(float* x) { *x = 1; }\n")
  foreach(architecture ${ARGN})
    execute_process(COMMAND ${KVCAL_HIPCC} --offload-arch=${architecture} -c ${PROJECT_BINARY_DIR}/hip_probe.hip
                            -o ${PROJECT_BINARY_DIR}/hip_probe.o RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      list(APPEND known ${architecture})
    endif()
  endforeach()
  set(${result} ${known} PARENT_SCOPE)
endfunction()

# hipcc is called by hand: CMake's HIP language does not find the files of Debian's packages.
function(add_hip_kernels)
  find_program(KVCAL_HIPCC hipcc HINTS /opt/rocm/bin REQUIRED)
  find_library(KVCAL_HIP_RUNTIME amdhip64 HINTS /opt/rocm/lib REQUIRED)
  if(NOT DEFINED CACHE{KVCAL_HIP_ARCHITECTURES_FOUND} AND NOT KVCAL_GPU_ARCHITECTURES)
    find_hip_architectures(found gfx908 gfx90a gfx942 gfx950 gfx1100 gfx1200)
    set(KVCAL_HIP_ARCHITECTURES_FOUND "${found}" CACHE INTERNAL "")
    message(STATUS "HIP architectures: ${found}")
  endif()
  if(KVCAL_GPU_ARCHITECTURES)
    set(architectures ${KVCAL_GPU_ARCHITECTURES})
  else()
    set(architectures ${KVCAL_HIP_ARCHITECTURES_FOUND})
  endif()
  if(NOT architectures)
    message(FATAL_ERROR "hipcc compiles for none of the chips we support")
  endif()
  list(JOIN architectures "," chips)
  list(TRANSFORM architectures PREPEND --offload-arch=)
  set(includes "")
  foreach(layer core quant backend kernels)
    list(APPEND includes -I${KVCAL_INCLUDE_ROOT}/${layer})
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/gpu/*.cu ${PROJECT_SOURCE_DIR}/kernels/gpu/hip/*.cu)
  set(objects "")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    set(object ${PROJECT_BINARY_DIR}/kernels_gpu/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d COMMENT "HIP ${name}.cu" VERBATIM
      COMMAND ${KVCAL_HIPCC} -std=c++20 -O3 -DNDEBUG -ffp-contract=off -fPIC ${architectures} ${includes} -DKVCAL_GPU_CHIPS="${chips}" -Wall -Wextra
              $<$<BOOL:${KVCAL_WERROR}>:-Werror> -MD -MF ${object}.d -MT ${object} -x hip -c ${source} -o ${object})
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/kernels_gpu)
  add_library(kernels_gpu STATIC ${objects})
  set_target_properties(kernels_gpu PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(kernels_gpu PUBLIC ${KVCAL_HIP_RUNTIME} PRIVATE ${CMAKE_DL_LIBS})
endfunction()

if(KVCAL_PTX_JUDGE AND NOT (KVCAL_GPU STREQUAL "CUDA" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64"))
  message(FATAL_ERROR "KVCAL_PTX_JUDGE needs KVCAL_GPU=CUDA, found '${KVCAL_GPU}', and an x86-64 processor, found ${CMAKE_SYSTEM_PROCESSOR}")
endif()
if(KVCAL_GPU STREQUAL "CUDA")
  add_cuda_kernels()
  if(KVCAL_PTX_JUDGE)
    add_subdirectory(${PROJECT_SOURCE_DIR}/tests/ptx)
  endif()
  set(gpu_name cuda)
elseif(KVCAL_GPU STREQUAL "HIP")
  add_hip_kernels()
  set(gpu_name hip)
elseif(KVCAL_GPU)
  message(FATAL_ERROR "KVCAL_GPU is '${KVCAL_GPU}', expected CUDA, HIP or nothing")
endif()
if(KVCAL_GPU)
  target_link_libraries(kernels_gpu PUBLIC kernels)
  target_link_libraries(kernels PRIVATE kernels_gpu)
  # For the one file that reads it: the others are the same objects in every build.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/kernels/backends.cc PROPERTIES COMPILE_DEFINITIONS KVCAL_GPU_NAME="${gpu_name}")
endif()
