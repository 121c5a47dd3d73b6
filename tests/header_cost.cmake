# The cost of including stretto.h: its size in bytes after the preprocessor, with everything it
# includes. The compile time is printed but not checked, as it depends on the machine.

set(limit 3000000)  # 2.5 million with the standard library of GCC 12

set(compile ${CMAKE_COMMAND} -E env CCACHE_DISABLE=1 ${CXX} -std=c++20 -I${ROOT} -include stretto.h -x c++)
execute_process(COMMAND ${compile} -E -P /dev/null OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(LENGTH "${text}" bytes)

string(TIMESTAMP start "%s%f")
execute_process(COMMAND ${compile} -c /dev/null -o /dev/null COMMAND_ERROR_IS_FATAL ANY)
string(TIMESTAMP stop "%s%f")
math(EXPR milliseconds "(${stop} - ${start}) / 1000")

message("stretto.h: ${bytes} bytes after the preprocessor, compiled in ${milliseconds} ms on this machine")
if(bytes GREATER limit)
  message(FATAL_ERROR "stretto.h is larger than ${limit} bytes after the preprocessor: include less, or use forward declarations")
endif()
