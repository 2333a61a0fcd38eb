// The first 128 bytes of a CMF file (section 1): where everything is.
#ifndef MOEWE_FORMATS_CMF_ENVELOPE_H_
#define MOEWE_FORMATS_CMF_ENVELOPE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/byte_reader.h"

namespace moewe::formats::cmf {

inline constexpr uint64_t kEnvelopeSize = 128;
inline constexpr std::string_view kMagic{"CMF\x01", 4};
inline constexpr uint32_t kVersion = 2;
inline constexpr uint64_t kDataAlignment = 4096;
inline constexpr uint64_t kTensorAlignment = 64;

// required_features (section 1.1).
inline constexpr uint32_t kTensorDir = 1u << 0;
inline constexpr uint32_t kBinaryMasks = 1u << 1;
inline constexpr uint32_t kQuant2f = 1u << 2;
inline constexpr uint32_t kLoopMasks = 1u << 5;
inline constexpr uint32_t kSkillFile = 1u << 6;
inline constexpr uint32_t kKnownFeatures =
    kTensorDir | kBinaryMasks | kQuant2f | kLoopMasks | kSkillFile;

// "QUANT_2F" for kQuant2f; "bit 9" for one without a name.
std::string FeatureName(uint32_t bit_index);

struct Section {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool present() const { return length != 0; }
};

struct Envelope {
  uint32_t flags = 0;
  uint32_t required_features = 0;
  Section header;
  Section directory;
  Section data;
  Section masks;
  Section tokenizer;
  Section index;
  uint64_t header_hash = 0;     // 0 = not protected
  uint64_t directory_hash = 0;  // 0 = not protected
};

// Checks magic, version, features, that every section is inside of the file, and data alignment.
// Afterwards SectionBytes can't fail. Throws Error{kInvalidMagic, kUnsupportedVersion,
// kUnsupportedFeature, kBounds}.
Envelope ParseEnvelope(Bytes file, const std::string& path);

inline Bytes SectionBytes(Bytes file, const Section& section) {
  return section.present() ? file.subspan(static_cast<size_t>(section.offset),
                                          static_cast<size_t>(section.length))
                           : Bytes();
}

// The 128 bytes of an envelope.
std::array<uint8_t, kEnvelopeSize> SerializeEnvelope(const Envelope& envelope);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_ENVELOPE_H_
