# Of programs that cpack has laid out, where there are any; the libraries it strips itself.
file(GLOB programs ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/stretto-*)
if(programs)
  execute_process(COMMAND strip ${programs} COMMAND_ERROR_IS_FATAL ANY)
endif()
