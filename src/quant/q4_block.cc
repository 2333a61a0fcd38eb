// q4_block: groups of 32 over the flattened tensor, the last one padded with zeros;
// [nibbles: groups*16][f16 scale: groups]; w = (q - 8) * scale, scale = absmax(group) / 7. Any
// shape.
#include "quant/codecs.h"
#include "quant/layout.h"

namespace moewe::quant {
namespace {

// Never overflows, as n + 31 could.
uint64_t GroupsOf(uint64_t elements) { return elements / kGroup + (elements % kGroup != 0); }

std::optional<uint64_t> Size(MatrixShape shape) {
  const std::optional<uint64_t> elements = CheckedMul(shape.rows, shape.cols);
  if (!elements) return std::nullopt;
  return CheckedMul(GroupsOf(*elements), kGroupNibbles + kScaleBytes);
}

void DecodeRows(Bytes bytes, MatrixShape shape, uint64_t row_begin, uint64_t row_end, float* out) {
  const uint8_t* scales = bytes.data() + GroupsOf(shape.rows * shape.cols) * kGroupNibbles;
  const uint64_t begin = row_begin * shape.cols;
  const uint64_t end = row_end * shape.cols;
  for (uint64_t group = begin / kGroup; group < GroupsOf(end); ++group) {
    float decoded[kGroup];
    DecodeNibbles(bytes.data() + group * kGroupNibbles, LoadF16(scales + group * kScaleBytes),
                  decoded);
    const uint64_t from = std::max(begin, group * kGroup);  // a group may straddle rows
    const uint64_t to = std::min(end, (group + 1) * kGroup);
    std::copy_n(decoded + from % kGroup, to - from, out + (from - begin));
  }
}

// row_begin * cols is a multiple of the group because row_begin is a multiple of kEncodeRowAlign.
void EncodeRows(const float* values, MatrixShape shape, uint64_t row_begin, uint64_t row_end,
                uint8_t* out) {
  uint8_t* scales = out + GroupsOf(shape.rows * shape.cols) * kGroupNibbles;
  const uint64_t first = row_begin * shape.cols / kGroup;
  const uint64_t count = (row_end - row_begin) * shape.cols;
  for (uint64_t at = 0; at < count; at += kGroup) {
    const uint64_t group = first + at / kGroup;
    float padded[kGroup] = {};
    const float* source = values + at;
    if (count - at < kGroup) {
      std::copy_n(values + at, count - at, padded);
      source = padded;
    }
    StoreU16(scales + group * kScaleBytes, EncodeQ4Group(source, out + group * kGroupNibbles));
  }
}

}  // namespace

const Codec kQ4BlockCodec =
    RowWiseCodec<Size, DecodeRows, EncodeRows>(DType::kQ4Block, HoldsAnything);

}  // namespace moewe::quant
