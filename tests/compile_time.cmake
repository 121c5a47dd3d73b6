# Headers that compile by themselves and cheaply, and the installed and packaged library.

set(list ${CMAKE_CURRENT_BINARY_DIR}/headers.txt)
get_property(headers GLOBAL PROPERTY STRETTO_HEADERS)
foreach(header ${headers})
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  list(APPEND lines ${header})
endforeach()
list(JOIN lines "\n" lines)
file(WRITE ${list} "${lines}\n")
list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND "-isystem" OUTPUT_VARIABLE toolkit)
list(JOIN toolkit " " toolkit)
add_test(NAME headers_self_contained
         COMMAND bash -c "bash ${CMAKE_CURRENT_SOURCE_DIR}/headers.sh ${CMAKE_CXX_COMPILER} ${toolkit} <${list}")

add_test(NAME header_cost
         COMMAND ${CMAKE_COMMAND} -D CXX=${CMAKE_CXX_COMPILER} -D ROOT=${PROJECT_SOURCE_DIR}
                 -P ${CMAKE_CURRENT_SOURCE_DIR}/header_cost.cmake)
set_tests_properties(header_cost PROPERTIES RUN_SERIAL ON)

# Compiles one kernel source if the CUDA Toolkit is installed but the build is without CUDA.
if(NOT STRETTO_WITH_CUDA)
  find_program(STRETTO_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(STRETTO_NVCC)
    add_test(NAME cuda_source COMMAND ${STRETTO_NVCC} -std=c++20 --expt-relaxed-constexpr -I${PROJECT_SOURCE_DIR}
             -Werror=all-warnings -arch=sm_90 -c ${PROJECT_SOURCE_DIR}/cuda/attention/skew.cu
             -o ${CMAKE_CURRENT_BINARY_DIR}/skew.o)
    set_tests_properties(cuda_source PROPERTIES LABELS "compile_time;cuda")
  endif()
endif()

if(STRETTO_INSTALL)
  add_test(NAME consumer
           COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D BUILD=${PROJECT_BINARY_DIR}
                   -D CONFIG=$<CONFIG> -D CXX=${CMAKE_CXX_COMPILER} -D "GENERATOR=${CMAKE_GENERATOR}"
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake)
  set_tests_properties(consumer PROPERTIES LABELS compile_time)
endif()

set_tests_properties(headers_self_contained header_cost PROPERTIES LABELS compile_time)

# Stretto as a subproject, and the commands in docs/install.md.
add_test(NAME package_subproject
         COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/package/subproject_test.sh
                 ${PROJECT_BINARY_DIR}/subproject ${CMAKE_CXX_COMPILER})
add_test(NAME package_install_page
         COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/package/install_page_test.sh
                 ${PROJECT_BINARY_DIR}/install_page ${CMAKE_CXX_COMPILER})
set_tests_properties(package_subproject package_install_page PROPERTIES
  LABELS package
  SKIP_RETURN_CODE 77)

# The contents of the Debian package, and its installation in a minimal Debian.
if(STRETTO_INSTALL AND STRETTO_SHARED AND STRETTO_EXAMPLES)
  foreach(name contents bare_root)
    add_test(NAME package_${name}
             COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/package/${name}_test.sh ${PROJECT_BINARY_DIR})
    set_tests_properties(package_${name} PROPERTIES
      LABELS package
      SKIP_RETURN_CODE 77
      RESOURCE_LOCK build)  # cpack asks the build whether it is complete
  endforeach()
endif()

# The programs on two hosts, simulated by network namespaces; skipped without the right to create them.
if(STRETTO_EXAMPLES)
  add_test(NAME two_hosts
           COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/hosts/two_hosts_test.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(two_hosts PROPERTIES SKIP_RETURN_CODE 77)
endif()
