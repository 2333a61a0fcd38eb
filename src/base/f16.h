// Half-precision and bfloat16 conversions, exact in every bit and independent of the CPU.
#ifndef MOEWE_BASE_F16_H_
#define MOEWE_BASE_F16_H_

#include <bit>
#include <cstdint>

namespace moewe {

// IEEE binary16 to binary32: exact for all 65,536 values; NaN payloads are kept (quiet bit as
// stored).
float F16ToF32(uint16_t half);

// binary32 to binary16 as the CMF writers do it: normals round to nearest even, subnormal results
// round half up in magnitude (2^-25 becomes 0x0001), below that a signed zero; too large becomes
// infinity; NaN stays NaN. Differs from IEEE conversion only in exact ties between subnormals.
uint16_t F32ToF16(float value);

inline float Bf16ToF32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; NaN stays a quiet NaN.
uint16_t F32ToBf16(float value);

}  // namespace moewe

#endif  // MOEWE_BASE_F16_H_
