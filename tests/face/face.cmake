# The programs that the README and docs/ show, built and run as they stand there.
foreach(name model custom_op position published_weights)
  add_executable(face_${name} ${CMAKE_CURRENT_LIST_DIR}/${name}.cpp)
  target_link_libraries(face_${name} PRIVATE stretto::stretto)
  add_test(NAME face_${name} COMMAND face_${name})
endforeach()
add_test(NAME face_pages
  COMMAND ${CMAKE_COMMAND} -D FOLDER=${CMAKE_CURRENT_LIST_DIR} -D ROOT=${PROJECT_SOURCE_DIR}
          -P ${CMAKE_CURRENT_LIST_DIR}/check_pages.cmake)
