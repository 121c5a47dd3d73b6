# Strips the programs in cpack's staging directory. cpack itself strips the libraries.
file(GLOB programs ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/bin/stretto-*)
if(programs)
  execute_process(COMMAND strip ${programs} COMMAND_ERROR_IS_FATAL ANY)
endif()
