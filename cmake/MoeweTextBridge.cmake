# The Rust crate text-bridge/ as an imported static library, rebuilt by cargo when its sources change.
find_program(MOEWE_CARGO NAMES cargo cargo-web REQUIRED)
set(bridge_dir ${CMAKE_SOURCE_DIR}/text-bridge)
set(bridge_target ${CMAKE_BINARY_DIR}/text-bridge)
set(bridge_lib ${bridge_target}/release/libmoewe_text_bridge.a)
file(GLOB_RECURSE bridge_sources CONFIGURE_DEPENDS ${bridge_dir}/src/*.rs)
add_custom_command(
  OUTPUT ${bridge_lib}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${bridge_target}
          ${MOEWE_CARGO} build --release --locked --quiet --manifest-path ${bridge_dir}/Cargo.toml
  DEPENDS ${bridge_sources} ${bridge_dir}/Cargo.toml ${bridge_dir}/Cargo.lock
  COMMENT "Building text-bridge (cargo)" VERBATIM)
add_custom_target(moewe_text_bridge_build DEPENDS ${bridge_lib})
add_library(moewe_text_bridge INTERFACE)
add_dependencies(moewe_text_bridge moewe_text_bridge_build)
target_include_directories(moewe_text_bridge INTERFACE ${bridge_dir}/include)
target_link_libraries(moewe_text_bridge INTERFACE ${bridge_lib} Threads::Threads ${CMAKE_DL_LIBS} m)
