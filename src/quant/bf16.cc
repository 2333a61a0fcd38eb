// bf16: the upper half of an f32, rounded to nearest even.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {

using Floats = TwoByteFloats<Bf16ToF32, F32ToBf16>;

const Codec kBf16Codec =
    RowWiseCodec<Floats::Size, Floats::DecodeRows, Floats::EncodeRows>(DType::kBf16, HoldsAnything);

}  // namespace moewe::quant
