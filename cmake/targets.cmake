# Compile options and helpers for all targets of this project.

# Sets include directories, warnings, floating-point rules and, if a parent project has no build
# type, optimization. No -ffast-math, also if a parent project sets it: NaN, infinity and the order of
# sums matter. No -march: hot loops are cloned per instruction set in the source. -ffp-contract=off
# makes results independent of the clone chosen.
function(stretto_flags target)
  # BEFORE: a parent project may have a directory core/, too.
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD OFF                # unnamed namespaces of several sources define the same names
    COMPILE_WARNING_AS_ERROR OFF)  # STRETTO_WERROR decides
  set(warnings -Wall -Wextra -Wshadow
      -Wno-missing-field-initializers)  # designated initializers leave other options at defaults
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND warnings -Wno-restrict)  # false alarms on std::string (GCC bug 105651)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND warnings -Wno-unknown-pragmas)  # GCC ivdep
    if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 17 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 22)
      list(APPEND warnings -Wno-shadow)  # false alarms on captures of structured bindings (LLVM issue 68605)
    endif()
  endif()
  if(STRETTO_WERROR AND NOT (STRETTO_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))  # false alarms
    list(APPEND warnings -Werror)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  else()
    list(APPEND warnings -Wno-error)  # a parent project's -Werror is meant for its own code
  endif()
  set(maths -fno-fast-math -fno-math-errno -fno-trapping-math)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND maths -fno-thread-jumps)  # which turns selections in core/math.h into branches
  endif()
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:${warnings};-Wpedantic;${maths};-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=$<JOIN:${warnings};${maths},$<COMMA>>>)

  get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
  if(NOT CMAKE_BUILD_TYPE AND NOT multi_config AND NOT "${CMAKE_CXX_FLAGS};${options}" MATCHES "-O")
    target_compile_options(${target} PRIVATE -O3 -DNDEBUG)
  endif()
endfunction()

# Precompiles `header`, a file of the repository, or reuses that of another target. Does nothing if
# there is a compiler cache: it cannot cache sources that use a precompiled header.
function(stretto_precompile target header)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  if(TARGET ${header})
    target_precompile_headers(${target} REUSE_FROM ${header})
  else()
    target_precompile_headers(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/${header}>)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms in std::string, absent without a precompiled header
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-array-bounds>")
  endif()
endfunction()

# Lowers the optimization of a release build for tests and programs, so that they compile fast.
function(stretto_quick target optimization header)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${optimization}>)
  stretto_precompile(${target} ${header})
endfunction()

# Adds one executable per NAME.cpp in a subdirectory, linked to the given libraries.
function(stretto_programs folder)
  file(GLOB programs CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(source ${programs})
    cmake_path(GET source STEM name)
    add_executable(${name} ${source})
    stretto_flags(${name})
    target_link_libraries(${name} PRIVATE ${ARGN})
    file(STRINGS ${source} includes REGEX "^#include .*(pretrained|examples/published)")
    if(includes)
      target_link_libraries(${name} PRIVATE stretto_published)
    endif()
    if("stretto_examples" IN_LIST ARGN)
      stretto_quick(${name} -O1 stretto_examples)
    endif()
  endforeach()
endfunction()

# Adds a static library of the given sources, or an interface library if there are none.
function(stretto_helper_library name)
  if(ARGN)
    add_library(${name} STATIC ${ARGN})
    stretto_flags(${name})
  else()
    add_library(${name} INTERFACE)
  endif()
endfunction()
