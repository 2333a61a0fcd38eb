# Build tools that only make the build faster: used where present, never required.
find_program(MOEWE_CCACHE ccache)
if(MOEWE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MOEWE_CCACHE})
endif()
find_program(MOEWE_MOLD mold)
if(MOEWE_MOLD AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()
