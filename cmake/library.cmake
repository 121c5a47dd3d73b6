# The library and its components. Each is a static library and, with STRETTO_SHARED, also a shared one
# of the same objects. Before version 1.0.0 a minor version may change the ABI, so the soname contains it.

set(soversion ${PROJECT_VERSION_MAJOR})
if(soversion EQUAL 0)
  set(soversion 0.${PROJECT_VERSION_MINOR})
endif()

# Adds the library `target` of these SOURCES, stretto::EXPORT for users, which includes <stretto/...>
# and links the libraries PUBLIC and PRIVATE; and target_shared, stretto::SHARED_EXPORT. `HEADERS` are
# installed.
function(stretto_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXPORT;SHARED_EXPORT" "SOURCES;HEADERS;PUBLIC;PRIVATE")
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(stretto::${arg_EXPORT} ALIAS ${target})
  stretto_flags(${target})
  # Position-independent, so that it can be linked into shared libraries; calls within it stay direct.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${arg_EXPORT})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>
                                           $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fno-semantic-interposition>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  stretto_include_dir(${target} PUBLIC)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  set(targets ${target})

  if(STRETTO_SHARED)
    # A parent project may hide symbols by default; here exports.map decides what is exported.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fvisibility=default;-fno-visibility-inlines-hidden>
      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fvisibility=default,-fno-visibility-inlines-hidden>)
    add_library(${target}_shared SHARED $<TARGET_OBJECTS:${target}>)
    add_library(stretto::${arg_SHARED_EXPORT} ALIAS ${target}_shared)
    set_target_properties(${target}_shared PROPERTIES
      OUTPUT_NAME ${target}
      EXPORT_NAME ${arg_SHARED_EXPORT}
      LINKER_LANGUAGE CXX
      VERSION ${PROJECT_VERSION}
      SOVERSION ${soversion}
      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
    target_link_options(${target}_shared PRIVATE
      -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,-Bsymbolic-functions)
    if(NOT STRETTO_SANITIZE)
      target_link_options(${target}_shared PRIVATE -Wl,--no-undefined)
    endif()
    target_compile_features(${target}_shared INTERFACE cxx_std_20)
    stretto_include_dir(${target}_shared INTERFACE)
    string(REPLACE stretto stretto_shared arg_PUBLIC "${arg_PUBLIC}")
    target_link_libraries(${target}_shared PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
    list(APPEND targets ${target}_shared)
  endif()
  set_property(GLOBAL APPEND PROPERTY STRETTO_LIBRARIES ${targets})
  set_property(GLOBAL APPEND PROPERTY STRETTO_HEADERS ${arg_HEADERS})
endfunction()

# Adds the component `name`: the sources and headers of the folder of that name and the header
# stretto_NAME.h. Its static library links stretto and the libraries PRIVATE.
function(stretto_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${name}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${name}/*.h)
  stretto_library(stretto_${name} EXPORT ${name} SHARED_EXPORT ${name}_shared SOURCES ${sources}
                  HEADERS ${headers} ${CMAKE_CURRENT_SOURCE_DIR}/stretto_${name}.h PUBLIC stretto
                  PRIVATE ${arg_PRIVATE})
  stretto_precompile(stretto_${name} stretto)
endfunction()
