# cmake --install: library and headers, and the package that find_package(stretto) finds.
# Headers lie under include/stretto as in the tree: <stretto.h>, "nn/transformer.h".

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stretto)

install(TARGETS stretto EXPORT strettoTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stretto)
install(EXPORT strettoTargets NAMESPACE stretto:: DESTINATION ${package_dir})

configure_package_config_file(cmake/strettoConfig.cmake.in ${PROJECT_BINARY_DIR}/strettoConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/strettoConfig.cmake ${PROJECT_BINARY_DIR}/strettoConfigVersion.cmake
        DESTINATION ${package_dir})
