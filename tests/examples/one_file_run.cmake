# Runs the command BEFORE, if there is one, and then PROGRAM with ARGUMENTS, in an empty directory. Fails
# unless both exit with 0 and the output of PROGRAM matches SAYS.
get_filename_component(name ${PROGRAM} NAME)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/one_file_${name})
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
if(BEFORE)
  execute_process(COMMAND ${BEFORE} WORKING_DIRECTORY ${folder}
                  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${BEFORE} exited with ${status}:\n${output}")
  endif()
endif()
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} WORKING_DIRECTORY ${folder}
                OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
message("${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${name} exited with ${status}")
endif()
if(NOT output MATCHES "${SAYS}")
  message(FATAL_ERROR "the output of ${name} does not match ${SAYS}")
endif()
