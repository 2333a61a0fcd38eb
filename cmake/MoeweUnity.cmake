# Files compiled together. Reading headers and instantiating nlohmann/json and fmt takes more than half of the time that
# a file takes to compile; with MOEWE_UNITY=8, eight files of a target share it. For builds from nothing: `make` and the
# sanitizers. Who changes code has less to wait without (`cmake --preset release`).
set(MOEWE_UNITY 0 CACHE STRING "So many files of a target are compiled as one; 0 = each for itself")

# What is compiled file by file all the same, because its files give one name to different things by design. Files that come
# to do so by chance get another name, or a line here.
set(moewe_alone_targets
  moewe_quant     # every codec has its DecodeRows, EncodeRows, Size
  moewe_kernels   # Highway's files include themselves; several instruction sets have a Load
  program_test)   # kDemo, Golden
set(moewe_alone_files
  "/src/cli/verb_[^/]*[.]cc$"  # every verb has its Flags and Run
  # Tests with a subject, a file or a policy of their own under a common name.
  "/src/experts/(cache_policy|expert_store_ahead)_test[.]cc$"
  "/src/engine/streamed_engine_test[.]cc$"
  "/src/model/streaming_test[.]cc$"
  "/src/convert/(convert|cut)_test[.]cc$")
list(JOIN moewe_alone_files "|" moewe_alone_files)

# For a target whose sources are complete.
function(moewe_unity target)
  if(NOT MOEWE_UNITY OR target IN_LIST moewe_alone_targets)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${MOEWE_UNITY})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Means headers: a type of this file only in a class that others know.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    if(source MATCHES "${moewe_alone_files}")
      set_source_files_properties(${source} TARGET_DIRECTORY ${target}
        PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
