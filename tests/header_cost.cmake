# What a file that includes the umbrella header costs its compiler: the bytes that are left of it
# and of all it includes after the preprocessor. The time is said, not judged: it is the machine's.

set(limit 3000000)  # 2.5 million with the standard library of GCC 12

set(compile ${CMAKE_COMMAND} -E env CCACHE_DISABLE=1 ${CXX} -std=c++20 -I${ROOT} -include stretto.h -x c++)
execute_process(COMMAND ${compile} -E -P /dev/null OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(LENGTH "${text}" bytes)

string(TIMESTAMP start "%s%f")
execute_process(COMMAND ${compile} -c /dev/null -o /dev/null COMMAND_ERROR_IS_FATAL ANY)
string(TIMESTAMP stop "%s%f")
math(EXPR milliseconds "(${stop} - ${start}) / 1000")

message("stretto.h is ${bytes} bytes after the preprocessor, and here compiles in ${milliseconds} ms")
if(bytes GREATER limit)
  message(FATAL_ERROR "stretto.h has grown beyond ${limit} bytes: include less, or declare instead")
endif()
