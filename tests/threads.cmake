# stretto_threads: the tests of threads and of a training step, compiled together with the library
# under ThreadSanitizer.

include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS -fsanitize=thread)
check_cxx_source_compiles("int main() {}" STRETTO_HAS_TSAN)
unset(CMAKE_REQUIRED_FLAGS)
if(NOT STRETTO_HAS_TSAN)
  message(STATUS "ThreadSanitizer: not supported by this compiler; the tests of threads run without it")
  return()
endif()

# The tests use none of these directories, which take almost half of the time.
set(sanitized_sources ${sources})
list(FILTER sanitized_sources EXCLUDE REGEX
  "/nn/(data|files|training)/|/nn/distributed/data_parallel_step\\.cpp$")

add_executable(stretto_threads support/main.cpp autograd/recompute_test.cpp core/parallel_test.cpp
  nn/threads_test.cpp ${sanitized_sources} ${PROJECT_SOURCE_DIR}/cuda/none.cpp)
stretto_flags(stretto_threads)
stretto_precompile(stretto_threads cmake/precompiled.h)
target_include_directories(stretto_threads SYSTEM PRIVATE ${STRETTO_XXHASH})
target_compile_options(stretto_threads PRIVATE -O0 -g1 -fsanitize=thread)
target_link_options(stretto_threads PRIVATE -fsanitize=thread)
target_link_libraries(stretto_threads PRIVATE
  Threads::Threads ${CMAKE_DL_LIBS} nlohmann_json::nlohmann_json Catch2::Catch2)

# The shadow memory of ThreadSanitizer needs address space randomization to be off.
set(fixed_addresses "")
find_program(STRETTO_SETARCH setarch)
if(STRETTO_SETARCH)
  execute_process(COMMAND ${STRETTO_SETARCH} -R true RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0)
    set(fixed_addresses ${STRETTO_SETARCH} -R)
  endif()
endif()
add_test(NAME threads_sanitized COMMAND ${fixed_addresses} $<TARGET_FILE:stretto_threads>)
set_tests_properties(threads_sanitized PROPERTIES
  LABELS "core;autograd;nn"
  TIMEOUT 900
  ENVIRONMENT "${environment};TSAN_OPTIONS=halt_on_error=1")
