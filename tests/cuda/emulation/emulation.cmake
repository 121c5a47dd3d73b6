# stretto_emulated: the CUDA tests on the emulated GPU of cuda_runtime.h beside this file. The .cu files
# are compiled as C++ and linked before the library, whose own cuda/ objects are then left out.

file(GLOB emulated_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cuda/*.cu)
file(GLOB emulated_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../*_test.cpp)
list(APPEND emulated_tests ${PROJECT_SOURCE_DIR}/tests/ops/op_table_test.cpp)
set_source_files_properties(${emulated_sources} PROPERTIES LANGUAGE CXX)
add_executable(stretto_emulated support/main.cpp ${emulated_tests} ${emulated_sources})
stretto_flags(stretto_emulated)
target_compile_options(stretto_emulated PRIVATE -Wno-unknown-pragmas)  # unroll
target_include_directories(stretto_emulated BEFORE PRIVATE ${CMAKE_CURRENT_LIST_DIR} ${PROJECT_SOURCE_DIR})
target_link_libraries(stretto_emulated PRIVATE stretto_test_support stretto::stretto Catch2::Catch2)
foreach(order forwards backwards)
  add_test(NAME cuda_emulated_${order} COMMAND stretto_emulated)
  set_tests_properties(cuda_emulated_${order} PROPERTIES LABELS cuda TIMEOUT 900
    ENVIRONMENT "STRETTO_NUM_THREADS=2")
endforeach()
set_property(TEST cuda_emulated_backwards APPEND PROPERTY ENVIRONMENT STRETTO_EMULATE_BACKWARDS=1)
