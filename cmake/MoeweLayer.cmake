# One folder of src/ is one layer: an object library that becomes part of `moewe`, and a test program.

# Everything compiles with these. No contraction and no fast-math: results must not depend on what the
# compiler chooses to fuse (docs/architecture.md, "Same tokens, whatever the circumstances").
add_library(moewe_options INTERFACE)
target_compile_options(moewe_options INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -ffp-contract=off
  $<$<BOOL:${MOEWE_WERROR}>:-Werror>
  $<$<CONFIG:Release>:-O$<IF:$<BOOL:$<TARGET_PROPERTY:MOEWE_QUICK_TO_COMPILE>>,1,2>>)
target_include_directories(moewe_options INTERFACE
  ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(moewe_options INTERFACE MOEWE_VERSION="${PROJECT_VERSION}")
target_link_libraries(moewe_options INTERFACE nlohmann_json::nlohmann_json fmt::fmt hwy::hwy
  Threads::Threads)
if(MOEWE_SANITIZE)
  target_compile_options(moewe_options INTERFACE
    -fsanitize=${MOEWE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(moewe_options INTERFACE -fsanitize=${MOEWE_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  if(MOEWE_SANITIZE)
    # clang links a sanitizer's runtime statically; tests that count allocations replace its operator new.
    target_link_options(moewe_options INTERFACE -Wl,-z,muldefs)
  endif()
  # clang reports libstdc++ 12's own use of std::get_temporary_buffer (in stable_sort) as ours.
  target_compile_options(moewe_options INTERFACE -Wno-deprecated-declarations)
endif()
if(MOEWE_BUILD_FUZZ)
  # The fuzzer follows what the library's code does.
  target_compile_options(moewe_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# What layers are compiled with beside that; those up to kernels do without.
set(moewe_libraries "")
if(NOT MOEWE_KERNELS_ONLY)
  set(moewe_libraries moewe_text_bridge PkgConfig::UTF8PROC Boost::headers OpenSSL::Crypto)
endif()

# moewe_layer(name): src/name/**/*.cc into `moewe`, src/name/**/*_test.cc into `name_test`.
function(moewe_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(sources)
    add_library(moewe_${name} OBJECT ${sources})
    target_link_libraries(moewe_${name} PRIVATE moewe_options ${moewe_libraries})
    target_sources(moewe PRIVATE $<TARGET_OBJECTS:moewe_${name}>)
    moewe_unity(moewe_${name})
    if(name STREQUAL "kernels")
      # Register tiles are loops over a few rows and tokens that must be unrolled; -O2 leaves them rolled
      # and their vectors in memory, at half the speed. Options of a source come after a target's.
      set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
    endif()
  endif()
  if(tests AND MOEWE_BUILD_TESTS)
    moewe_test(${name}_test ${tests})
  endif()
endfunction()

# The one object of the tests that knows where it was built (tests/paths.h).
if(MOEWE_BUILD_TESTS)
  add_library(moewe_test_paths STATIC ${CMAKE_SOURCE_DIR}/tests/paths.cc)
  target_compile_definitions(moewe_test_paths PRIVATE
    MOEWE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MOEWE_BINARY="${CMAKE_BINARY_DIR}/moewe")
endif()

# moewe_test(name sources...): a GoogleTest program over the library, registered case by case.
function(moewe_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE moewe_options moewe ${moewe_libraries}
    GTest::gtest GTest::gmock GTest::gtest_main $<TARGET_NAME_IF_EXISTS:ZLIB::ZLIB> moewe_test_paths)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  # The tests' own code takes much time to compile and next to none to run.
  if(MOEWE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  elseif(MOEWE_UNITY)
    set_property(TARGET ${name} PROPERTY MOEWE_QUICK_TO_COMPILE ON)  # not -O0: some warnings need what is known from here on
  endif()
  moewe_unity(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
endfunction()
