# The Rust crate text-bridge/ as an imported static library, rebuilt by cargo when its sources change.

# The first cargo that is new enough: the one in PATH, or the system's behind an older one.
set(MOEWE_CARGO_MINIMUM 1.88)
if(NOT MOEWE_CARGO)
  find_program(moewe_cargo_path cargo NO_CACHE)
  foreach(candidate IN ITEMS "${moewe_cargo_path}" "$ENV{HOME}/.cargo/bin/cargo" /usr/local/bin/cargo /usr/bin/cargo)
    if(MOEWE_CARGO OR NOT EXISTS "${candidate}")
      continue()
    endif()
    execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE version_line ERROR_QUIET)
    if(version_line MATCHES "^cargo ([0-9]+\\.[0-9]+)" AND
       CMAKE_MATCH_1 VERSION_GREATER_EQUAL MOEWE_CARGO_MINIMUM)
      set(MOEWE_CARGO ${candidate} CACHE FILEPATH "cargo, at least ${MOEWE_CARGO_MINIMUM}")
    endif()
  endforeach()
endif()
if(NOT MOEWE_CARGO)
  message(FATAL_ERROR "text-bridge needs cargo >= ${MOEWE_CARGO_MINIMUM}. On Debian 12: apt install "
    "cargo-web; elsewhere https://rustup.rs. Or set MOEWE_CARGO to its path.")
endif()

# All presets share one cargo folder, build/text-bridge: the crate is the same whatever C++ is built with.
set(bridge_dir ${CMAKE_SOURCE_DIR}/text-bridge)
cmake_path(IS_PREFIX CMAKE_SOURCE_DIR ${CMAKE_BINARY_DIR} NORMALIZE bridge_is_inside)
if(bridge_is_inside)
  set(bridge_target ${CMAKE_SOURCE_DIR}/build/text-bridge)
else()
  set(bridge_target ${CMAKE_BINARY_DIR}/text-bridge)
endif()
set(bridge_lib ${bridge_target}/release/libmoewe_text_bridge.a)
file(GLOB_RECURSE bridge_sources CONFIGURE_DEPENDS ${bridge_dir}/src/*.rs)
set(bridge_cargo ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${bridge_target} ${MOEWE_CARGO})
set(bridge_flags --release --locked --quiet --manifest-path ${bridge_dir}/Cargo.toml)
# The touch is for sources that are newer without being different: cargo then leaves the library as it is.
add_custom_command(
  OUTPUT ${bridge_lib}
  COMMAND ${bridge_cargo} build ${bridge_flags}
  COMMAND ${CMAKE_COMMAND} -E touch ${bridge_lib}
  DEPENDS ${bridge_sources} ${bridge_dir}/Cargo.toml ${bridge_dir}/Cargo.lock
  COMMENT "Building text-bridge (cargo)" VERBATIM)
add_custom_target(moewe_text_bridge_build DEPENDS ${bridge_lib})
add_library(moewe_text_bridge INTERFACE)
add_dependencies(moewe_text_bridge moewe_text_bridge_build)
target_include_directories(moewe_text_bridge INTERFACE ${bridge_dir}/include)
target_link_libraries(moewe_text_bridge INTERFACE ${bridge_lib} Threads::Threads ${CMAKE_DL_LIBS} m)

# The crate's own tests: every field of the golden cases, also those that C++ does not ask for. They say
# nothing about sanitizers, which do not see Rust.
if(MOEWE_BUILD_TESTS AND NOT MOEWE_SANITIZE)
  add_test(NAME TextBridge.CargoTest COMMAND ${bridge_cargo} test ${bridge_flags})
  set_tests_properties(TextBridge.CargoTest PROPERTIES TIMEOUT 900 ENVIRONMENT
    "MOEWE_SOURCE_DIR=${CMAKE_SOURCE_DIR}")
endif()
