# cmake --install: libraries and headers of what is built, the package files for find_package(stretto)
# and pkg-config, documentation with the one-file examples, and the programs, if they are built, as stretto-NAME
# with manual pages.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stretto)

get_property(targets GLOBAL PROPERTY STRETTO_LIBRARIES)
install(TARGETS ${targets} EXPORT strettoTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
get_property(installed_headers GLOBAL PROPERTY STRETTO_HEADERS)
if(NOT STRETTO_WITH_CUDA)  # no kernel headers, and no spe_conv_source.h, which includes them
  list(REMOVE_ITEM installed_headers ${kernel_headers})
  list(FILTER installed_headers EXCLUDE REGEX "/ops/spe/spe_conv_source\\.h$")
endif()
foreach(header ${installed_headers})
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE name)
  cmake_path(GET name PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto/${folder})
endforeach()
install(EXPORT strettoTargets NAMESPACE stretto:: DESTINATION ${package_dir})

configure_package_config_file(cmake/strettoConfig.cmake.in ${PROJECT_BINARY_DIR}/strettoConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/strettoConfig.cmake ${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
        DESTINATION ${package_dir})

# Paths in the pkg-config file are relative to its directory, so that the prefix can be moved,
# unless the install directories were configured as absolute paths.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
endif()
foreach(dir INCLUDEDIR LIBDIR)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_${dir} BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE pc_${dir})
endforeach()
function(stretto_pkg_config name requires description libs_private)
  configure_file(cmake/stretto.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
set(libs_private "-pthread -ldl")
if(STRETTO_WITH_CUDA)
  string(APPEND libs_private " -L${CUDAToolkit_LIBRARY_DIR} -lcudart -lcublas -lcublasLt")
endif()
stretto_pkg_config(stretto "" "${PROJECT_DESCRIPTION}; its headers are C++20" "${libs_private}")
if(STRETTO_MUSIC)
  stretto_pkg_config(stretto_music stretto "MIDI files, and music as tokens, for stretto" "")
endif()
if(STRETTO_PRETRAINED)
  stretto_pkg_config(stretto_pretrained stretto "Models and tokenizers of other libraries, for stretto"
                     "-lpcre2-8 -lutf8proc")
endif()

set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/stretto)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${doc_dir})
install(FILES LICENSE DESTINATION ${doc_dir} RENAME copyright)  # Debian's name for it
install(DIRECTORY docs DESTINATION ${doc_dir} FILES_MATCHING PATTERN *.md PATTERN *.svg)

# The API reference, if doxygen is found.
find_program(STRETTO_DOXYGEN doxygen)
if(STRETTO_DOXYGEN)
  install(CODE "execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/docs/reference.sh ${PROJECT_BINARY_DIR}/reference
                                OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)")
  install(DIRECTORY ${PROJECT_BINARY_DIR}/reference DESTINATION ${doc_dir} OPTIONAL)
endif()
file(GLOB examples CONFIGURE_DEPENDS examples/*.cpp)
foreach(example ${examples})
  file(STRINGS ${example} others REGEX "^#include \"examples/")  # headers that are not installed
  if(NOT others)
    install(FILES ${example} DESTINATION ${doc_dir}/examples)
  endif()
endforeach()
install(FILES cmake/examples.cmake DESTINATION ${doc_dir}/examples RENAME CMakeLists.txt)

if(STRETTO_EXAMPLES)
  find_program(STRETTO_HELP2MAN help2man)
  if(NOT STRETTO_HELP2MAN)
    message(STATUS "help2man not found: no manual pages for the programs (Debian: apt install help2man)")
  endif()
  file(GLOB programs CONFIGURE_DEPENDS examples/programs/*.cpp)
  foreach(source ${programs})
    cmake_path(GET source STEM target)
    string(REGEX REPLACE "^stretto-" "" name ${target})
    string(REPLACE "_" "-" name stretto-${name})
    install(PROGRAMS $<TARGET_FILE:${target}> DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ${name})
    if(STRETTO_HELP2MAN)
      set(page ${PROJECT_BINARY_DIR}/manual/${name}.1)
      add_custom_command(OUTPUT ${page}
        COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/manual.sh ${STRETTO_HELP2MAN} ${PROJECT_VERSION}
                $<TARGET_FILE:${target}> ${page}
        DEPENDS ${target} cmake/manual.sh
        VERBATIM)
      list(APPEND pages ${page})
    endif()
  endforeach()
  if(STRETTO_HELP2MAN)
    add_custom_target(stretto_manual ALL DEPENDS ${pages})
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()
