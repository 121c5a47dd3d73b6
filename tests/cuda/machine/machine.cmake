# Stand-ins for the CUDA libraries that run the PTX of our own binaries on the CPU (machine.h):
#   LD_LIBRARY_PATH=build/release/machine build/release/tests/stretto_tests '[#row_kernels_test]'

if(NOT STRETTO_WITH_CUDA)
  message(STATUS "CUDA tests without a GPU (tests/cuda/machine): off, they need the CUDA Toolkit")
  add_test(NAME cuda_machine COMMAND ${CMAKE_COMMAND} -E echo "skipped: no CUDA Toolkit")
  set_tests_properties(cuda_machine PROPERTIES LABELS "cuda;machine" SKIP_REGULAR_EXPRESSION skipped)
  return()
endif()

set(machine ${CMAKE_CURRENT_LIST_DIR})
set(machine_folder ${PROJECT_BINARY_DIR}/machine)
file(GLOB machine_sources CONFIGURE_DEPENDS ${machine}/*.cpp)
list(FILTER machine_sources EXCLUDE REGEX "/cublas(lt)?\\.cpp$")

# Loops over 32 lanes: as wide as this CPU has them.
include(CheckCXXSourceRuns)
foreach(level 4 3)
  if(NOT machine_level)
    check_cxx_source_runs("int main() { return !__builtin_cpu_supports(\"x86-64-v${level}\"); }"
                          STRETTO_X86_64_V${level})
    if(STRETTO_X86_64_V${level})
      set(machine_level ${level})
    endif()
  endif()
endforeach()

function(stretto_stand_in name version)
  add_library(machine_${name} SHARED ${ARGN})
  stretto_flags(machine_${name})
  target_include_directories(machine_${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(machine_${name} PRIVATE -O3
    $<$<BOOL:${machine_level}>:-march=x86-64-v${machine_level};-mprefer-vector-width=512>)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/machine_${name}.map)
  configure_file(${machine}/version.map.in ${script} @ONLY)
  target_link_options(machine_${name} PRIVATE -Wl,--version-script=${script} -Wl,-Bsymbolic)
  set_target_properties(machine_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version}
    LIBRARY_OUTPUT_DIRECTORY ${machine_folder} LINK_DEPENDS ${script})
endfunction()
stretto_stand_in(cudart ${CUDAToolkit_VERSION_MAJOR} ${machine_sources})
stretto_stand_in(cublas ${CUDAToolkit_VERSION_MAJOR} ${machine}/cublas.cpp)
stretto_stand_in(cublasLt ${CUDAToolkit_VERSION_MAJOR} ${machine}/cublaslt.cpp)
foreach(name cublas cublasLt)
  target_link_libraries(machine_${name} PRIVATE machine_cudart)
  add_dependencies(stretto_tests machine_${name})
endforeach()

# NCCL for processes of one host, which goes by that runtime, or by a GPU's.
stretto_stand_in(nccl 2 ${PROJECT_SOURCE_DIR}/tests/nccl/nccl.cpp)
target_link_libraries(machine_nccl PRIVATE machine_cudart rt)
add_dependencies(stretto_tests machine_nccl)

# The CUDA tests of the normal binary, and the op table's, in three orders of warps and blocks.
file(GLOB machine_tests RELATIVE ${machine}/.. CONFIGURE_DEPENDS ${machine}/../*_test.cpp)
list(REMOVE_ITEM machine_tests budgets_test.cpp)
list(TRANSFORM machine_tests REPLACE "(.*)\\.cpp$" "[#\\1]")
list(APPEND machine_tests "[#op_table_test]")
list(JOIN machine_tests "," machine_tests)
set(streams_forwards eager)
set(streams_backwards lazy)
set(streams_random lazy)
foreach(order forwards backwards random)
  add_test(NAME cuda_machine_${order} COMMAND stretto_tests --filenames-as-tags "${machine_tests}")
  set_tests_properties(cuda_machine_${order} PROPERTIES LABELS "cuda;machine" TIMEOUT 1800
    ENVIRONMENT "STRETTO_NUM_THREADS=1;STRETTO_ALLOC=exact;LD_LIBRARY_PATH=${machine_folder};MACHINE_ORDER=${order};MACHINE_STREAMS=${streams_${order}}")
endforeach()
# What kernels move, and how, against what they must; kernels.tsv has their registers and counters.
add_test(NAME cuda_machine_budgets COMMAND stretto_tests --filenames-as-tags "[#budgets_test]")
set_tests_properties(cuda_machine_budgets PROPERTIES LABELS "cuda;machine" TIMEOUT 900
  ENVIRONMENT "STRETTO_NUM_THREADS=1;STRETTO_ALLOC=exact;LD_LIBRARY_PATH=${machine_folder};MACHINE_DECODE=1;MACHINE_COUNTERS=${machine_folder}/kernels.tsv")
# Every kernel of the binary is known to the machine, launched or not; any test of the CPU will do.
add_test(NAME cuda_machine_decode COMMAND stretto_tests "nothing is allocated for nothing")
set_tests_properties(cuda_machine_decode PROPERTIES LABELS "cuda;machine" TIMEOUT 600
  ENVIRONMENT "LD_LIBRARY_PATH=${machine_folder};MACHINE_DECODE=1")

# Models there: each position and kernel against the CPU, the worked cases, a program of one file.
set(machine_environment "STRETTO_NUM_THREADS=1;LD_LIBRARY_PATH=${machine_folder};MACHINE_ORDER=random")
add_test(NAME cuda_machine_models COMMAND stretto_tests --filenames-as-tags "[#registry_test]")
# What ops, models, references and worked cases promise, with all of it made there.
foreach(folder nn nn/attention nn/data nn/files nn/models nn/optim nn/positions nn/published nn/training
        ops/attention ops/spe reference conformance)
  file(GLOB folder_tests RELATIVE ${PROJECT_SOURCE_DIR}/tests/${folder} CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cpp)
  list(REMOVE_ITEM folder_tests registry_test.cpp program_test.cpp)
  if(folder STREQUAL nn/positions)
    list(APPEND folder_tests position_measures_test.cpp)  # of examples/piano
  elseif(folder STREQUAL nn/optim)
    list(APPEND folder_tests optimizer_shards_test.cpp)  # of nn/distributed
  endif()
  list(TRANSFORM folder_tests REPLACE "(.*)\\.cpp$" "[#\\1]")
  list(JOIN folder_tests "," folder_tests)
  string(REPLACE "/" "_" folder ${folder})
  add_test(NAME cuda_machine_all_${folder}
    COMMAND stretto_tests --filenames-as-tags "${folder_tests}")
  set_tests_properties(cuda_machine_all_${folder} PROPERTIES LABELS "cuda;machine" TIMEOUT 900
    ENVIRONMENT "${machine_environment};STRETTO_TEST_DEVICE=cuda")
endforeach()
foreach(dtype f64 f32 bf16)
  add_test(NAME cuda_machine_conformance_${dtype}
    COMMAND conformance --device cuda --dtype ${dtype} ${cases})
endforeach()
set(machine_programs cuda_machine_models cuda_machine_conformance_f64 cuda_machine_conformance_f32
  cuda_machine_conformance_bf16)
if(STRETTO_EXAMPLES)
  add_test(NAME cuda_machine_melody COMMAND melody --device cuda)
  add_test(NAME cuda_machine_programs
    COMMAND stretto_tests "programs train on a GPU as on the CPU,programs' steps on a GPU*,several GPUs*")
  list(APPEND machine_programs cuda_machine_melody cuda_machine_programs)
  set(machine_long cuda_machine_programs)
endif()
set_tests_properties(${machine_programs} PROPERTIES LABELS "cuda;machine" TIMEOUT 900
  ENVIRONMENT "${machine_environment}")

# The models where blocks have less shared memory than fused kernels take.
add_test(NAME cuda_machine_little_shared COMMAND stretto_tests --filenames-as-tags "[#registry_test]")
set_tests_properties(cuda_machine_little_shared PROPERTIES LABELS "cuda;machine" TIMEOUT 900
  ENVIRONMENT "${machine_environment};MACHINE_SHARED=99")

# Each barrier taken away (removals.h), and told by one file of tests; for the tests of bounds and
# alignment all files are needed: tests/cuda/machine/scripts/removals.sh, by hand.
add_test(NAME cuda_machine_barriers COMMAND ${CMAKE_COMMAND} -E env KIND=barriers
  TESTS=bounds_test,linear_attention_kernels_test,feature_kernels_test,attention_kernels_test,attention_decode_test,fft_kernels_test,spe_kernels_test
  bash ${machine}/scripts/removals.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_machine_barriers PROPERTIES LABELS "cuda;machine" TIMEOUT 900)

# What takes minutes begins first, so that no core waits at the end.
set_tests_properties(cuda_machine_barriers cuda_machine_forwards cuda_machine_backwards
  cuda_machine_random cuda_machine_models cuda_machine_all_ops_attention cuda_machine_budgets
  ${machine_long} PROPERTIES COST 1000)

# What ptxas made of the kernels, where there is a disassembler.
add_test(NAME cuda_machine_assembly COMMAND bash ${machine}/scripts/assembly.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_machine_assembly PROPERTIES LABELS "cuda;machine" TIMEOUT 900
  SKIP_RETURN_CODE 77)

# What benchmarks/gpu takes to a machine with a GPU.
add_test(NAME cuda_machine_rehearsal COMMAND bash ${machine}/scripts/rehearsal.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_machine_rehearsal PROPERTIES LABELS "cuda;machine" TIMEOUT 900)

# Planted faults and what must be said of each.
file(GLOB fault_sources CONFIGURE_DEPENDS ${machine}/faults/*.cu ${machine}/faults/*.cpp)
add_executable(machine_faults ${fault_sources})
target_link_libraries(machine_faults PRIVATE CUDA::cudart CUDA::cublas CUDA::cublasLt ${CMAKE_DL_LIBS})
target_compile_options(machine_faults PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=550>)
add_dependencies(machine_faults machine_cudart machine_cublas machine_cublasLt)
foreach(order forwards backwards random)
  add_test(NAME machine_faults_${order} COMMAND machine_faults)
  set_tests_properties(machine_faults_${order} PROPERTIES LABELS "cuda;machine" TIMEOUT 600
    ENVIRONMENT "LD_LIBRARY_PATH=${machine_folder};MACHINE_ORDER=${order}")
endforeach()
