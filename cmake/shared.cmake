# stretto_shared (stretto::shared for users): libstretto.so, from the objects of the static library.
# Before version 1.0.0 a minor version may change the ABI, so the soname contains it.

add_library(stretto_shared SHARED $<TARGET_OBJECTS:stretto>)
add_library(stretto::shared ALIAS stretto_shared)
set(soversion ${PROJECT_VERSION_MAJOR})
if(soversion EQUAL 0)
  set(soversion 0.${PROJECT_VERSION_MINOR})
endif()
set_target_properties(stretto_shared PROPERTIES
  OUTPUT_NAME stretto
  EXPORT_NAME shared
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${soversion}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
target_link_options(stretto_shared PRIVATE
  -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,-Bsymbolic-functions)
if(NOT STRETTO_SANITIZE)
  target_link_options(stretto_shared PRIVATE -Wl,--no-undefined)
endif()
target_compile_features(stretto_shared INTERFACE cxx_std_20)
stretto_include_dir(stretto_shared INTERFACE)
# A parent project may hide symbols by default; here exports.map decides what is exported.
target_compile_options(stretto PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-fvisibility=default;-fno-visibility-inlines-hidden>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fvisibility=default,-fno-visibility-inlines-hidden>)
target_link_libraries(stretto_shared PRIVATE ${libraries})
