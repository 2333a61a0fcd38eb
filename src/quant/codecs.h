// Every codec by name, for the table in codec.cc.
#ifndef MOEWE_QUANT_CODECS_H_
#define MOEWE_QUANT_CODECS_H_

#include "quant/codec.h"

namespace moewe::quant {

extern const Codec kF32Codec;
extern const Codec kF16Codec;
extern const Codec kBf16Codec;
extern const Codec kQ8RowCodec;
extern const Codec kQ4BlockCodec;
extern const Codec kU8Codec;
extern const Codec kVbitCodec;
extern const Codec kQ82fCodec;
extern const Codec kVbitRoCodec;
extern const Codec kQ4TiledCodec;
extern const Codec kQ1Codec;
extern const Codec kQ1sCodec;
extern const Codec kQ1tCodec;
extern const Codec kQ4tpCodec;
extern const Codec kSmoeQ4Codec;
extern const Codec kSmoeQ2Codec;

}  // namespace moewe::quant

#endif  // MOEWE_QUANT_CODECS_H_
