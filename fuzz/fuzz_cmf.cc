// Any bytes given to the CMF parser: they parse or they throw moewe::Error.
#include <cstddef>
#include <cstdint>

#include "formats/cmf/cmf_file.h"
#include "moewe/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    moewe::formats::ParseCmf({data, size}, "fuzz");
  } catch (const moewe::Error&) {
  }
  return 0;
}
