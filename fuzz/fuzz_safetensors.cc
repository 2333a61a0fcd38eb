// Any bytes given to the safetensors parser: they parse or they throw moewe::Error.
#include <cstddef>
#include <cstdint>

#include "formats/safetensors/safetensors.h"
#include "moewe/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    moewe::formats::ParseSafetensors({data, size}, "fuzz");
  } catch (const moewe::Error&) {
  }
  return 0;
}
