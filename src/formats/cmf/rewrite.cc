#include "formats/cmf/rewrite.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "platform/atomic_file.h"

namespace moewe::formats {
namespace {

// The header's text with section_hashes of what is written. A hash that was absent stays absent
// where the section did not change.
std::string HeaderText(const Json& header, const CmfChanges& changes, Bytes masks, Bytes index) {
  Json renewed = header;
  Json hashes = header.contains("section_hashes") && header["section_hashes"].is_object()
                    ? header["section_hashes"]
                    : Json::object();
  const auto renew = [&hashes](const char* key, bool changed, Bytes bytes) {
    if (!changed) return;
    hashes.erase(key);
    if (!bytes.empty()) hashes[key] = HashToHex(HashBytes(bytes));
  };
  renew("masks", changes.masks.has_value(), masks);
  renew("index", changes.index.has_value(), index);
  if (!hashes.empty() || header.contains("section_hashes")) renewed["section_hashes"] = hashes;
  return renewed.dump();
}

}  // namespace

void RewriteCmf(const CmfFile& source, const CmfChanges& changes, const std::string& dst) {
  const CmfContents& contents = source.contents();
  const cmf::Envelope& old = contents.envelope;
  const Bytes file = source.file_bytes();
  const auto bytes_of = [&](const std::optional<std::vector<uint8_t>>& changed,
                            const cmf::Section& section) {
    return changed ? Bytes(*changed) : SectionBytes(file, section);
  };
  const Bytes masks = bytes_of(changes.masks, old.masks);
  const Bytes tokenizer = SectionBytes(file, old.tokenizer);
  const Bytes index = bytes_of(changes.index, old.index);
  const Bytes directory = SectionBytes(file, old.directory);
  const std::string header = HeaderText(contents.header.json, changes, masks, index);

  cmf::Envelope envelope = old;
  envelope.header = {cmf::kEnvelopeSize, header.size()};
  envelope.directory = {cmf::kEnvelopeSize + header.size(), directory.size()};
  const uint64_t head = envelope.directory.offset + envelope.directory.length;
  envelope.data.offset =
      (head + cmf::kDataAlignment - 1) / cmf::kDataAlignment * cmf::kDataAlignment;
  uint64_t position = envelope.data.offset + envelope.data.length;
  const auto place = [&position](Bytes bytes) {
    const cmf::Section section{bytes.empty() ? 0 : position, bytes.size()};
    position += bytes.size();
    return section;
  };
  envelope.masks = place(masks);
  envelope.tokenizer = place(tokenizer);
  envelope.index = place(index);
  envelope.required_features =
      (old.required_features & ~(cmf::kBinaryMasks | cmf::kLoopMasks)) |
      cmf::MaskFeatures(envelope.masks.present(), contents.header.num_loops);
  envelope.header_hash = HashBytes(BytesOf(header));

  AtomicFile out(dst);
  const auto serialized = cmf::SerializeEnvelope(envelope);
  out.Write(Bytes(serialized));
  out.Write(header);
  out.Write(directory);
  out.Write(std::string(static_cast<size_t>(envelope.data.offset - head), '\0'));
  constexpr size_t kPiece = size_t{8} << 20;
  const Bytes data = SectionBytes(file, old.data);
  for (size_t begin = 0; begin < data.size(); begin += kPiece) {
    out.Write(data.subspan(begin, std::min(kPiece, data.size() - begin)));
    source.CheckReadable();
  }
  out.Write(masks);
  out.Write(tokenizer);
  out.Write(index);
  source.CheckReadable();
  out.Commit();
}

}  // namespace moewe::formats
