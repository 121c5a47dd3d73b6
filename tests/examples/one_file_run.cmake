# Runs PROGRAM in a folder of its own; fails unless it ends well and its output matches SAYS.
get_filename_component(name ${PROGRAM} NAME)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/one_file_${name})
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${PROGRAM} WORKING_DIRECTORY ${folder}
                OUTPUT_VARIABLE said ERROR_VARIABLE said RESULT_VARIABLE ended)
message("${said}")
if(NOT ended EQUAL 0)
  message(FATAL_ERROR "${name} ended with ${ended}")
endif()
if(NOT said MATCHES "${SAYS}")
  message(FATAL_ERROR "${name} did not say ${SAYS}")
endif()
