# Runs the command BEFORE, if there is one, and then PROGRAM with ARGUMENTS, in a folder of their own.
# Fails unless both end well and the output of PROGRAM matches SAYS.
get_filename_component(name ${PROGRAM} NAME)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/one_file_${name})
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
if(BEFORE)
  execute_process(COMMAND ${BEFORE} WORKING_DIRECTORY ${folder}
                  OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE ended)
  if(NOT ended EQUAL 0)
    message(FATAL_ERROR "${BEFORE} ended with ${ended}:\n${said}")
  endif()
endif()
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} WORKING_DIRECTORY ${folder}
                OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE ended)
message("${said}")
if(NOT ended EQUAL 0)
  message(FATAL_ERROR "${name} ended with ${ended}")
endif()
if(NOT said MATCHES "${SAYS}")
  message(FATAL_ERROR "${name} did not say ${SAYS}")
endif()
