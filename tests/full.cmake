# The label `full`: entries that run only in tests/run.sh --all. They take more than ten seconds on two
# cores, start other builds, or start programs many times.

set(full
  # programs: killed, resumed, in several processes
  every_program faults_programs launch one_file_processes outputs processes program_reports
  sequence_parallel train_chorales_input train_chorales_stop two_hosts
  # other builds, packages, a browser
  consumer headers_self_contained package_bare_root package_contents package_install_page
  package_subproject report_page
  # long fault injection and fuzzing; threads under ThreadSanitizer
  faults_address_space threads_sanitized)

get_property(entries DIRECTORY PROPERTY TESTS)
foreach(name IN LISTS entries)
  get_property(labels TEST ${name} PROPERTY LABELS)
  if(name IN_LIST full OR "ptx" IN_LIST labels)  # CUDA kernels in the PTX interpreter
    set_property(TEST ${name} APPEND PROPERTY LABELS full)
  endif()
endforeach()
