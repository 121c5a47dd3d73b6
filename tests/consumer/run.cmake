# Installs BUILD, then configures, builds and runs against the installation: the project in this
# directory, a project with headers of the same names as those of stretto (whose source is ROOT), and
# an installed example.

set(work ${BUILD}/consumer)
set(prefix ${work}/prefix)
file(REMOVE_RECURSE ${work})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(configure source binary)
  run(${CMAKE_COMMAND} -S ${source} -B ${binary} -G ${GENERATOR} -D CMAKE_BUILD_TYPE=${CONFIG}
      -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_PREFIX_PATH=${prefix} ${ARGN})
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${prefix})
configure(${CMAKE_CURRENT_LIST_DIR} ${work}/build)
run(${CMAKE_COMMAND} --build ${work}/build --config ${CONFIG})
run(${work}/build/consumer)
run(${work}/build/components)
if(EXISTS ${work}/build/consumer_shared)
  run(${work}/build/consumer_shared)
endif()

set(OWN_HEADERS ${work}/own_headers)
include(${CMAKE_CURRENT_LIST_DIR}/own_headers.cmake)
configure(${CMAKE_CURRENT_LIST_DIR}/own_names ${work}/own_names -D OWN_HEADERS=${OWN_HEADERS})
run(${CMAKE_COMMAND} --build ${work}/own_names --config ${CONFIG} --target own_names_stretto)
run(${work}/own_names/own_names_stretto)

configure(${prefix}/share/doc/stretto/examples ${work}/examples)
run(${CMAKE_COMMAND} --build ${work}/examples --config ${CONFIG} --target own_op)
run(${work}/examples/own_op)
