# Compiles a file that only includes the umbrella header, and says how long it took (best of three).
# The aim is under a second; three fail, since machines are noisy.

set(best 1000000000)
foreach(attempt 1 2 3)
  string(TIMESTAMP start "%s%f")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env CCACHE_DISABLE=1
                          ${CXX} -std=c++20 -I${ROOT} -include stretto.h
                          -x c++ -c /dev/null -o /dev/null
                  COMMAND_ERROR_IS_FATAL ANY)
  string(TIMESTAMP stop "%s%f")
  math(EXPR microseconds "${stop} - ${start}")
  if(microseconds LESS best)
    set(best ${microseconds})
  endif()
endforeach()

math(EXPR milliseconds "${best} / 1000")
message("stretto.h compiles in ${milliseconds} ms")
if(milliseconds GREATER 3000)
  message(FATAL_ERROR "stretto.h takes ${milliseconds} ms to compile; the aim is 1000 ms")
elseif(milliseconds GREATER 1000)
  message("that is over the aim of 1000 ms")
endif()
