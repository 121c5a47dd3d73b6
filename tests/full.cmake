# The label `full`: entries that run only in tests/run.sh --all. They take more than ten seconds on two
# cores, start other builds, or start programs many times.

set(full
  # programs: killed, resumed, in several processes
  every_program faults_programs launch one_file_processes outputs processes program_reports
  sequence_parallel shared_options train_chorales_input train_chorales_stop two_hosts
  # other builds, packages, a browser
  consumer headers_self_contained package_bare_root package_contents package_install_page
  package_subproject python_package report_page
  # long fault injection and fuzzing; threads under ThreadSanitizer; counted instructions
  faults_address_space threads_sanitized instructions)

get_property(entries DIRECTORY PROPERTY TESTS)
foreach(name IN LISTS entries)
  get_property(labels TEST ${name} PROPERTY LABELS)
  if(name IN_LIST full OR "ptx" IN_LIST labels)  # CUDA kernels in the PTX interpreter
    set_property(TEST ${name} APPEND PROPERTY LABELS full)
  endif()
endforeach()

# Long entries start first, so that no core is idle at the end. Seconds on two cores, later replaced by
# ctest's own measurements.
set(costs
  cuda_ptx_forwards 310 cuda_ptx_backwards 210
  cuda_ptx_programs 180 cuda_ptx_all_ops_attention 150 cuda_ptx_models 140 cuda_ptx_all_nn_positions 90
  cuda_ptx_all_nn_models 80 processes 80 every_program 75 cuda_ptx_little_shared 65
  package_install_page 55 cuda_ptx_budgets 55 package_contents 55 cuda_ptx_all_ops_spe 40 launch 40
  headers_self_contained 40 sequence_parallel 35 train_chorales_input 30 one_file_processes 25
  cuda_ptx_all_conformance 25 every_position 25 gemm 25)
while(costs)
  list(POP_FRONT costs name seconds)
  if(name IN_LIST entries)
    set_property(TEST ${name} PROPERTY COST ${seconds})
  endif()
endwhile()
