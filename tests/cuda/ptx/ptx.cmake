# Stand-ins for the CUDA libraries that run the PTX of our own binaries on the CPU (interpreter.h):
#   LD_LIBRARY_PATH=build/release/ptx build/release/tests/stretto_tests '[#row_kernels_test]'

if(NOT STRETTO_WITH_CUDA)
  message(STATUS "CUDA tests without a GPU (tests/cuda/ptx): off, they need the CUDA Toolkit")
  add_test(NAME cuda_ptx COMMAND ${CMAKE_COMMAND} -E echo "skipped: no CUDA Toolkit")
  set_tests_properties(cuda_ptx PROPERTIES LABELS "cuda;ptx" SKIP_REGULAR_EXPRESSION skipped)
  return()
endif()

set(ptx ${CMAKE_CURRENT_LIST_DIR})
set(ptx_folder ${PROJECT_BINARY_DIR}/ptx)
file(GLOB ptx_sources CONFIGURE_DEPENDS ${ptx}/*.cpp)
list(FILTER ptx_sources EXCLUDE REGEX "/cublas(lt)?\\.cpp$")

# Loops over 32 lanes use the widest vectors of this CPU.
include(CheckCXXSourceRuns)
foreach(level 4 3)
  if(NOT ptx_level)
    check_cxx_source_runs("int main() { return !__builtin_cpu_supports(\"x86-64-v${level}\"); }"
                          STRETTO_X86_64_V${level})
    if(STRETTO_X86_64_V${level})
      set(ptx_level ${level})
    endif()
  endif()
endforeach()

function(stretto_stand_in name version)
  add_library(ptx_${name} SHARED ${ARGN})
  stretto_flags(ptx_${name})
  target_include_directories(ptx_${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(ptx_${name} PRIVATE -O3
    $<$<BOOL:${ptx_level}>:-march=x86-64-v${ptx_level};-mprefer-vector-width=512>)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/ptx_${name}.map)
  configure_file(${ptx}/version.map.in ${script} @ONLY)
  target_link_options(ptx_${name} PRIVATE -Wl,--version-script=${script} -Wl,-Bsymbolic)
  set_target_properties(ptx_${name} PROPERTIES OUTPUT_NAME ${name} SOVERSION ${version}
    LIBRARY_OUTPUT_DIRECTORY ${ptx_folder} LINK_DEPENDS ${script})
endfunction()
stretto_stand_in(cudart ${CUDAToolkit_VERSION_MAJOR} ${ptx_sources})
stretto_stand_in(cublas ${CUDAToolkit_VERSION_MAJOR} ${ptx}/cublas.cpp)
stretto_stand_in(cublasLt ${CUDAToolkit_VERSION_MAJOR} ${ptx}/cublaslt.cpp)
foreach(name cublas cublasLt)
  target_link_libraries(ptx_${name} PRIVATE ptx_cudart)
  add_dependencies(stretto_tests ptx_${name})
endforeach()

# A stand-in for NCCL for processes of one host, on that runtime or on a GPU's.
stretto_stand_in(nccl 2 ${PROJECT_SOURCE_DIR}/tests/nccl/nccl.cpp)
target_link_libraries(ptx_nccl PRIVATE ptx_cudart rt)
add_dependencies(stretto_tests ptx_nccl)

# The CUDA tests of the normal binary, and the op table tests, in two orders of warps and blocks; models
# run in a third (below).
file(GLOB ptx_tests RELATIVE ${ptx}/.. CONFIGURE_DEPENDS ${ptx}/../*_test.cpp)
list(REMOVE_ITEM ptx_tests budgets_test.cpp)
list(TRANSFORM ptx_tests REPLACE "\\.cpp$" "")
list(APPEND ptx_tests op_table_test)
list(TRANSFORM ptx_tests REPLACE "(.+)" "[#\\1]")
set(streams_forwards eager)
set(streams_backwards "lazy;PTX_CONTRACT=1")
foreach(order forwards backwards)
  set(order_tests ${ptx_tests})
  if(order STREQUAL backwards)  # not on the CPU again; no large grids, as blocks that share bytes fail in any order
    list(TRANSFORM order_tests APPEND "[cuda]~[large]")
  endif()
  list(JOIN order_tests "," order_tests)
  add_test(NAME cuda_ptx_${order} COMMAND stretto_tests --filenames-as-tags "${order_tests}")
  set_tests_properties(cuda_ptx_${order} PROPERTIES LABELS "cuda;ptx" TIMEOUT 1800
    ENVIRONMENT "STRETTO_NUM_THREADS=1;STRETTO_ALLOC=exact;LD_LIBRARY_PATH=${ptx_folder};PTX_ORDER=${order};PTX_STREAMS=${streams_${order}}")
endforeach()
# Memory traffic of kernels against their budgets; kernels.tsv has their registers and counters.
add_test(NAME cuda_ptx_budgets COMMAND stretto_tests --filenames-as-tags "[#budgets_test]")
set_tests_properties(cuda_ptx_budgets PROPERTIES LABELS "cuda;ptx" TIMEOUT 900
  ENVIRONMENT "STRETTO_NUM_THREADS=1;STRETTO_ALLOC=exact;LD_LIBRARY_PATH=${ptx_folder};PTX_DECODE=1;PTX_COUNTERS=${ptx_folder}/kernels.tsv")
# The interpreter must know every kernel of the binary, launched or not; any CPU test triggers it.
add_test(NAME cuda_ptx_decode COMMAND stretto_tests "nothing is allocated for nothing")
set_tests_properties(cuda_ptx_decode PROPERTIES LABELS "cuda;ptx" TIMEOUT 600
  ENVIRONMENT "LD_LIBRARY_PATH=${ptx_folder};PTX_DECODE=1")

# A driver that is older than the CUDA Toolkit's major version.
add_test(NAME cuda_ptx_old_driver COMMAND stretto_tests "without a usable GPU*")
set_tests_properties(cuda_ptx_old_driver PROPERTIES LABELS "cuda;ptx" TIMEOUT 60
  FAIL_REGULAR_EXPRESSION "SKIPPED" ENVIRONMENT "LD_LIBRARY_PATH=${ptx_folder};PTX_DRIVER=12040")

# Models on the interpreter: each position and kernel against the CPU, worked cases, a one-file program.
set(ptx_environment "STRETTO_NUM_THREADS=1;LD_LIBRARY_PATH=${ptx_folder};PTX_ORDER=random")
add_test(NAME cuda_ptx_models COMMAND stretto_tests --filenames-as-tags "[#registry_test]")
# The tests of ops, models, references and worked cases, with all tensors on the interpreter.
foreach(folder nn nn/attention nn/data nn/files nn/models nn/optim nn/positions nn/training ops/attention
        ops/spe pretrained/published reference conformance)
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
  add_test(NAME cuda_ptx_all_${folder}
    COMMAND stretto_tests --filenames-as-tags "${folder_tests}")
  set_tests_properties(cuda_ptx_all_${folder} PROPERTIES LABELS "cuda;ptx" TIMEOUT 900
    ENVIRONMENT "${ptx_environment};STRETTO_TEST_DEVICE=cuda")
endforeach()
foreach(dtype f64 f32 bf16)
  add_test(NAME cuda_ptx_conformance_${dtype}
    COMMAND conformance --device cuda --dtype ${dtype} ${cases})
endforeach()
set(ptx_programs cuda_ptx_models cuda_ptx_conformance_f64 cuda_ptx_conformance_f32
  cuda_ptx_conformance_bf16)
if(STRETTO_EXAMPLES)
  add_test(NAME cuda_ptx_melody COMMAND melody --device cuda)
  add_test(NAME cuda_ptx_programs
    COMMAND stretto_tests "programs train on a GPU as on the CPU,programs' steps on a GPU*,several GPUs*")
  list(APPEND ptx_programs cuda_ptx_melody cuda_ptx_programs)
endif()
set_tests_properties(${ptx_programs} PROPERTIES LABELS "cuda;ptx" TIMEOUT 900
  ENVIRONMENT "${ptx_environment}")

# The models with less shared memory per block than fused kernels need.
add_test(NAME cuda_ptx_little_shared COMMAND stretto_tests --filenames-as-tags "[#registry_test]")
set_tests_properties(cuda_ptx_little_shared PROPERTIES LABELS "cuda;ptx" TIMEOUT 900
  ENVIRONMENT "${ptx_environment};PTX_SHARED=99")

# The machine code that ptxas made of the kernels, if there is a disassembler.
add_test(NAME cuda_ptx_assembly COMMAND bash ${ptx}/scripts/assembly.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_ptx_assembly PROPERTIES LABELS "cuda;ptx" TIMEOUT 900
  SKIP_RETURN_CODE 77)

# What benchmarks/gpu runs on a machine with a GPU.
add_test(NAME cuda_ptx_rehearsal COMMAND bash ${ptx}/scripts/rehearsal.sh ${PROJECT_BINARY_DIR})
set_tests_properties(cuda_ptx_rehearsal PROPERTIES LABELS "cuda;ptx" TIMEOUT 900)

# Planted faults and the expected verdict of each.
file(GLOB fault_sources CONFIGURE_DEPENDS ${ptx}/faults/*.cu ${ptx}/faults/*.cpp)
add_executable(ptx_faults ${fault_sources})
target_link_libraries(ptx_faults PRIVATE CUDA::cudart CUDA::cublas CUDA::cublasLt ${CMAKE_DL_LIBS})
target_compile_options(ptx_faults PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=550>)
target_include_directories(ptx_faults PRIVATE ${PROJECT_SOURCE_DIR})
add_dependencies(ptx_faults ptx_cudart ptx_cublas ptx_cublasLt ptx_nccl)
foreach(order forwards backwards random)
  add_test(NAME ptx_faults_${order} COMMAND ptx_faults)
  set_tests_properties(ptx_faults_${order} PROPERTIES LABELS "cuda;ptx" TIMEOUT 600
    ENVIRONMENT "LD_LIBRARY_PATH=${ptx_folder};PTX_ORDER=${order}")
endforeach()
