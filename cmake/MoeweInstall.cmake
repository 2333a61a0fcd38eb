include(GNUInstallDirs)
install(TARGETS moewe_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
