# Decides STRETTO_WITH_CUDA from STRETTO_CUDA = AUTO | ON | OFF, and enables the language.

set(STRETTO_WITH_CUDA OFF)
if(NOT STRETTO_CUDA)
  set_source_files_properties(cuda/none.cpp PROPERTIES COMPILE_DEFINITIONS STRETTO_CUDA_OFF)
  message(STATUS "CUDA: off (STRETTO_CUDA=OFF)")
  return()
endif()

find_program(STRETTO_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
find_package(CUDAToolkit 13 QUIET)
set(missing "")
if(NOT STRETTO_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  list(APPEND missing nvcc)
endif()
foreach(part cudart cublas cublasLt)
  if(NOT TARGET CUDA::${part})
    list(APPEND missing ${part})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  if(STRETTO_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA: off (not found in a CUDA Toolkit of version 13 or newer: ${missing})")
    return()
  endif()
  message(FATAL_ERROR "STRETTO_CUDA=ON, but not found in a CUDA Toolkit of version 13 or newer: "
                      "${missing}. Put its nvcc on PATH, set CUDA_HOME, or build without CUDA: -DSTRETTO_CUDA=OFF")
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER ${STRETTO_NVCC})
endif()
if(NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING
      "GPU architectures: 90 is Hopper; \"native\" asks the GPU of this machine")
endif()
enable_language(CUDA)
get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
if("${CMAKE_CUDA_FLAGS};${options}" MATCHES "use_fast_math")
  message(FATAL_ERROR "--use_fast_math, set for all CUDA sources, breaks Stretto's kernels; set it for your own "
                      "targets with target_compile_options, or build without CUDA: -DSTRETTO_CUDA=OFF")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc supports C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(STRETTO_TESTS AND NOT CMAKE_CUDA_ARCHITECTURES MATCHES "-real$")
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--no-compress>)  # tests/cuda/ptx reads the PTX
endif()
if(STRETTO_TESTS)  # source lines for the PTX interpreter, compute-sanitizer and ncu; same code
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # one runtime per program, shared with cuBLAS
set(STRETTO_WITH_CUDA ON)
message(STATUS "CUDA: ${CUDAToolkit_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")

# Sets the flags of CUDA sources. Register spills and other use of local memory (indexed arrays) are
# errors on compute capability 9.0, for which the kernels are tuned, except in elementwise_sines.cu
# (reason there). Sources that include cuda/runtime/unfused.h get no fused multiply-adds.
function(stretto_kernel_flags)
  foreach(source ${ARGN})
    cmake_path(GET source FILENAME name)
    set(options "")
    if(name MATCHES "\\.cu$" AND NOT name STREQUAL "elementwise_sines.cu"
       AND CMAKE_CUDA_ARCHITECTURES MATCHES "^90(-real)?$")
      list(APPEND options -Xptxas=-warn-spills,-warn-lmem-usage,-Werror)
    endif()
    file(STRINGS ${source} unfused REGEX "^#include \"cuda/runtime/unfused\\.h\"")
    if(unfused)
      list(APPEND options -fmad=false -DSTRETTO_UNFUSED)
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}")
  endforeach()
endfunction()
