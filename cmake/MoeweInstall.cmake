# `cmake --install`: the program, the library with its headers, and a CMake package:
#
#   find_package(moewe REQUIRED)
#   target_link_libraries(app PRIVATE moewe::moewe)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS moewe_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS moewe ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${bridge_lib} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/moewe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moewe)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/moeweConfig.cmake.in
  ${CMAKE_BINARY_DIR}/moeweConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moeweConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moeweConfig.cmake ${CMAKE_BINARY_DIR}/moeweConfigVersion.cmake
  DESTINATION ${package_dir})
