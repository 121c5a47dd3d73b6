# Counts instructions of calls; skipped without valgrind.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME instructions
    COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/instructions.sh $<TARGET_FILE:instructions>
            "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  set_tests_properties(instructions PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900 COST 60)
endif()
