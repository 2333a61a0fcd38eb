#include "formats/cmf/envelope.h"

#include <fmt/format.h>

#include <cstring>

#include "moewe/error.h"

namespace moewe::formats::cmf {
namespace {

struct NamedSection {
  const char* name;
  Section Envelope::* section;
  bool required;
};

// In the order of the envelope's fields.
constexpr NamedSection kSections[] = {
    {"header", &Envelope::header, true},    {"directory", &Envelope::directory, true},
    {"data", &Envelope::data, false},       {"masks", &Envelope::masks, false},
    {"vocab", &Envelope::tokenizer, false}, {"index", &Envelope::index, false},
};

void CheckSection(const NamedSection& named, const Section& section, uint64_t file_size,
                  const std::string& path) {
  const std::string field = fmt::format("envelope.{}", named.name);
  if (named.required && !section.present()) {
    throw Error(ErrorCode::kBounds, fmt::format("the {} section is required", named.name),
                {path, field});
  }
  const auto end = CheckedAdd(section.offset, section.length);
  if (section.present() && (!end || *end > file_size)) {
    throw Error(ErrorCode::kBounds,
                fmt::format("section of {} bytes at {} runs past the file's {} bytes",
                            section.length, section.offset, file_size),
                {path, field});
  }
}

}  // namespace

std::string FeatureName(uint32_t bit_index) {
  static constexpr const char* kNames[] = {"TENSOR_DIR", "BINARY_MASKS", "QUANT_2F",  "DELTA_MASKS",
                                           "HOT_PACKS",  "LOOP_MASKS",   "SKILL_FILE"};
  if (bit_index < std::size(kNames)) return kNames[bit_index];
  return fmt::format("bit {}", bit_index);
}

Envelope ParseEnvelope(Bytes file, const std::string& path) {
  ByteReader reader(file, path);
  if (file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    throw Error(ErrorCode::kInvalidMagic, "the file does not begin with CMF\\x01",
                {path, "magic", 0});
  }
  if (file.size() < kEnvelopeSize) {
    throw Error(ErrorCode::kBounds,
                fmt::format("{} bytes are too few for the envelope", file.size()),
                {path, "envelope"});
  }
  reader.Take(kMagic.size(), "magic");
  if (const uint32_t version = reader.U32("version"); version != kVersion) {
    throw Error(ErrorCode::kUnsupportedVersion, fmt::format("version {}, moewe reads 2", version),
                {path, "version", kMagic.size()});
  }
  Envelope envelope;
  envelope.flags = reader.U32("flags");
  envelope.required_features = reader.U32("required_features");
  if (const uint32_t unknown = envelope.required_features & ~kKnownFeatures; unknown != 0) {
    std::string names;
    for (uint32_t bit = 0; bit < 32; ++bit) {
      if ((unknown >> bit & 1) != 0) names += (names.empty() ? "" : ", ") + FeatureName(bit);
    }
    throw Error(ErrorCode::kUnsupportedFeature,
                "the file needs features that moewe does not have: " + names,
                {path, "required_features", 12});
  }
  for (const NamedSection& named : kSections) {
    Section& section = envelope.*named.section;
    section.offset = reader.U64(named.name);
    section.length = reader.U64(named.name);
    CheckSection(named, section, file.size(), path);
  }
  envelope.header_hash = reader.U64("header hash");
  envelope.directory_hash = reader.U64("directory hash");
  if (envelope.data.offset % kDataAlignment != 0) {
    throw Error(ErrorCode::kBounds,
                fmt::format("offset {} is not a multiple of 4096", envelope.data.offset),
                {path, "envelope.data_off"});
  }
  return envelope;
}

std::array<uint8_t, kEnvelopeSize> SerializeEnvelope(const Envelope& envelope) {
  std::array<uint8_t, kEnvelopeSize> bytes{};
  size_t position = 0;
  const auto put = [&](auto value) {
    std::memcpy(bytes.data() + position, &value, sizeof(value));
    position += sizeof(value);
  };
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  position = kMagic.size();
  put(kVersion);
  put(envelope.flags);
  put(envelope.required_features);
  for (const NamedSection& named : kSections) {
    const Section& section = envelope.*named.section;
    put(section.present() ? section.offset : uint64_t{0});
    put(section.length);
  }
  // An empty blob still has its aligned place.
  std::memcpy(bytes.data() + 0x30, &envelope.data.offset, sizeof(uint64_t));
  put(envelope.header_hash);
  put(envelope.directory_hash);
  return bytes;
}

}  // namespace moewe::formats::cmf
