// f16: IEEE binary16. Norms and vectors of quantized files are stored so.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {

using Floats = TwoByteFloats<F16ToF32, F32ToF16>;

const Codec kF16Codec =
    RowWiseCodec<Floats::Size, Floats::DecodeRows, Floats::EncodeRows>(DType::kF16, HoldsAnything);

}  // namespace moewe::quant
