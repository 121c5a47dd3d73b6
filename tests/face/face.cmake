# The programs that the README shows, built and run as they stand there.
foreach(name model custom_op position)
  add_executable(face_${name} ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  target_link_libraries(face_${name} PRIVATE stretto::stretto)
  add_test(NAME face_${name} COMMAND face_${name})
endforeach()
add_test(NAME face_readme
  COMMAND ${CMAKE_COMMAND} -D FOLDER=${CMAKE_CURRENT_LIST_DIR}
          -D README=${PROJECT_SOURCE_DIR}/README.md -P ${CMAKE_CURRENT_LIST_DIR}/check_readme.cmake)
