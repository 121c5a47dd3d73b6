# cmake --install: libraries and headers, the packages that find_package(stretto) and pkg-config find,
# and where they were built the programs, as stretto-NAME, with their manual pages.
# Headers lie under include/stretto as in the tree: <stretto.h>, "nn/transformer.h".
# cpack: the same as a Debian package.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stretto)

install(TARGETS stretto EXPORT strettoTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto)
if(STRETTO_SHARED)
  install(TARGETS stretto_shared EXPORT strettoTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT strettoTargets NAMESPACE stretto:: DESTINATION ${package_dir})

configure_package_config_file(cmake/strettoConfig.cmake.in ${PROJECT_BINARY_DIR}/strettoConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/strettoConfig.cmake ${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
        DESTINATION ${package_dir})

# The folder of what pkg-config finds, seen from which the rest lies, wherever that is moved.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
set(libs_private "-pthread -ldl")
if(STRETTO_WITH_CUDA)
  string(APPEND libs_private " -L${CUDAToolkit_LIBRARY_DIR} -lcudart -lcublas -lcublasLt")
endif()
configure_file(cmake/stretto.pc.in ${PROJECT_BINARY_DIR}/stretto.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/stretto.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/stretto RENAME copyright)

if(STRETTO_EXAMPLES)
  find_program(STRETTO_HELP2MAN help2man)
  if(NOT STRETTO_HELP2MAN)
    message(STATUS "help2man not found: the programs get no manual pages (Debian: apt install help2man)")
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

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stretto)
set(CPACK_PACKAGE_CONTACT "Stretto maintainers <maintainers@users.noreply.a-seed-d2d8530e.example>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/strip.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS fonts-dejavu-core)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libopenblas0-pthread, g++, cmake | pkgconf")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Tensors, reverse-mode differentiation and complete Transformers whose
attention knows relative position. The package holds the library, shared and static, its headers, and
programs that train models of music, text and the tasks of the Long Range Arena.")
include(CPack)
