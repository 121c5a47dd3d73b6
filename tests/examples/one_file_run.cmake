# Runs PROGRAM in an empty directory; fails unless it exits with 0 and its output matches SAYS.
get_filename_component(name ${PROGRAM} NAME)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/one_file_${name})
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${PROGRAM} WORKING_DIRECTORY ${folder}
                OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
message("${output}")
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${name} exited with ${status}")
endif()
if(NOT output MATCHES "${SAYS}")
  message(FATAL_ERROR "the output of ${name} does not match ${SAYS}")
endif()
