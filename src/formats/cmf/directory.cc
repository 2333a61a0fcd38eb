#include "formats/cmf/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/utf8.h"
#include "moewe/error.h"
#include "quant/codec.h"

namespace moewe::formats::cmf {
namespace {

class DirectoryParser {
 public:
  DirectoryParser(Bytes file, const Envelope& envelope, const std::string& path,
                  DirectoryFault on_fault)
      : envelope_(envelope),
        path_(path),
        section_(SectionBytes(file, envelope.directory)),
        on_fault_(on_fault) {}

  std::vector<DirectoryRecord> Parse() {
    ByteReader reader(section_, path_, envelope_.directory.offset);
    const uint64_t count = reader.U64("directory.count");
    const uint64_t pool_offset = reader.U64("directory.pool_off");
    const auto records_size = CheckedMul(count, kRecordSize);
    if (!records_size || *records_size > reader.remaining()) {
      throw Error(
          ErrorCode::kParse,
          fmt::format("{} records do not fit the section of {} bytes", count, section_.size()),
          {path_, "directory.count", envelope_.directory.offset});
    }
    if (pool_offset < kDirectoryHeaderSize + *records_size || pool_offset > section_.size()) {
      throw Error(ErrorCode::kParse,
                  fmt::format("the name pool at {} is not after the records", pool_offset),
                  {path_, "directory.pool_off", envelope_.directory.offset + 8});
    }
    pool_ = section_.subspan(static_cast<size_t>(pool_offset));
    std::vector<DirectoryRecord> records;
    records.reserve(static_cast<size_t>(count));
    std::vector<uint64_t> indices;  // of the records in the file
    for (uint64_t i = 0; i < count; ++i) {
      Guard([&] {
        records.push_back(ReadRecord(reader, i));
        indices.push_back(i);
      });
    }
    CheckNames(records, indices);
    CheckDisjoint(records);
    return records;
  }

 private:
  template <typename Check>
  void Guard(const Check& check) const {
    try {
      check();
    } catch (const Error& error) {
      on_fault_(error);
    }
  }

  [[noreturn]] void Fail(ErrorCode code, uint64_t index, const char* field,
                         const std::string& message) const {
    throw Error(code, message,
                {path_, fmt::format("directory[{}].{}", index, field),
                 envelope_.directory.offset + kDirectoryHeaderSize + index * kRecordSize});
  }

  // Consumes the whole record before it checks anything.
  DirectoryRecord ReadRecord(ByteReader& reader, uint64_t index) {
    DirectoryRecord record;
    const uint64_t name_offset = reader.U32("name_off");
    const uint64_t name_length = reader.U16("name_len");
    const uint8_t dtype_id = reader.U8("dtype");
    const uint8_t ndim = reader.U8("ndim");
    std::array<uint32_t, kMaxDimensions> shape;
    for (uint32_t& dimension : shape) dimension = reader.U32("shape");
    record.offset = reader.U64("off");
    record.nbytes = reader.U64("nbytes");
    record.hash = reader.U64("hash");

    if (name_offset + name_length > pool_.size()) {
      Fail(ErrorCode::kParse, index, "name", "the name lies outside of the name pool");
    }
    if (name_length == 0) Fail(ErrorCode::kParse, index, "name", "a tensor without a name");
    // Names may share bytes of the pool, but not so that short records make long names of it.
    name_bytes_ += name_length;
    if (name_bytes_ > section_.size()) {
      Fail(ErrorCode::kParse, index, "name", "the names are longer than the whole directory");
    }
    const Bytes name =
        pool_.subspan(static_cast<size_t>(name_offset), static_cast<size_t>(name_length));
    if (!IsUtf8(name)) Fail(ErrorCode::kParse, index, "name", "the name is not UTF-8");
    record.name.assign(name.begin(), name.end());

    const auto dtype = DTypeFromId(dtype_id);
    if (!dtype) {
      Fail(ErrorCode::kParse, index, "dtype",
           fmt::format("tensor '{}' has the {} dtype id {}", record.name,
                       dtype_id == 5 || dtype_id == 7 ? "reserved" : "unknown", dtype_id));
    }
    record.dtype = *dtype;
    if (ndim > kMaxDimensions) {
      Fail(ErrorCode::kParse, index, "ndim",
           fmt::format("tensor '{}' has {} dimensions, at most 6 are possible", record.name, ndim));
    }
    for (size_t i = ndim; i < kMaxDimensions; ++i) {
      if (shape[i] != 0) {
        Fail(ErrorCode::kParse, index, "shape",
             fmt::format("tensor '{}' of {} dimensions gives {} sizes", record.name, ndim, i + 1));
      }
    }
    record.shape.assign(shape.begin(), shape.begin() + ndim);
    CheckSize(record, index);
    CheckPlace(record, index);
    return record;
  }

  // nbytes against dtype and shape, as far as a codec knows.
  void CheckSize(const DirectoryRecord& record, uint64_t index) const {
    const auto matrix = quant::AsMatrix(record.shape);
    if (!matrix) {
      Fail(ErrorCode::kBounds, index, "shape",
           fmt::format("the element count of '{}' does not fit 64 bits", record.name));
    }
    if ((matrix->rows == 0 || matrix->cols == 0) && record.nbytes != 0) {
      Fail(ErrorCode::kBounds, index, "shape",
           fmt::format("'{}' has no elements but {} bytes", record.name, record.nbytes));
    }
    const quant::Codec* codec = quant::FindCodec(record.dtype);
    if (codec == nullptr) return;
    if (!codec->holds(*matrix, record.shape.size())) {
      Fail(ErrorCode::kParse, index, "shape",
           fmt::format("{} can't hold the shape of '{}'", DTypeName(record.dtype), record.name));
    }
    const auto expected = codec->encoded_size(*matrix);
    if (expected && *expected != record.nbytes) {
      Fail(ErrorCode::kBounds, index, "nbytes",
           fmt::format("'{}' has {} bytes, {} of its shape takes {}", record.name, record.nbytes,
                       DTypeName(record.dtype), *expected));
    }
    // Fixed-size layouts say nothing only when the size overflows.
    if (!expected && record.dtype < DType::kVbit) {
      Fail(ErrorCode::kBounds, index, "shape",
           fmt::format("the size of '{}' does not fit 64 bits", record.name));
    }
  }

  void CheckPlace(const DirectoryRecord& record, uint64_t index) const {
    if (record.offset % kTensorAlignment != 0) {
      Fail(ErrorCode::kBounds, index, "off",
           fmt::format("offset {} of '{}' is not a multiple of 64", record.offset, record.name));
    }
    const auto end = CheckedAdd(record.offset, record.nbytes);
    if (!end || *end > envelope_.data.length) {
      Fail(ErrorCode::kBounds, index, "off",
           fmt::format("'{}' ({} bytes at {}) runs past the data section of {} bytes", record.name,
                       record.nbytes, record.offset, envelope_.data.length));
    }
  }

  void CheckNames(const std::vector<DirectoryRecord>& records,
                  const std::vector<uint64_t>& indices) const {
    std::unordered_set<std::string_view> names;
    names.reserve(records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      if (names.insert(records[i].name).second) continue;
      Guard([&] {
        Fail(ErrorCode::kParse, indices[i], "name",
             fmt::format("'{}' appears twice in the directory", records[i].name));
      });
    }
  }

  // Sections may lie anywhere, also in gaps of the data section (append-only growth leaves the
  // tokenizer there), but a byte has one meaning.
  void CheckDisjoint(const std::vector<DirectoryRecord>& records) const {
    struct Extent {
      uint64_t begin;
      uint64_t end;
      std::string_view name;
    };
    std::vector<Extent> extents;
    extents.reserve(records.size() + 6);
    extents.push_back({0, kEnvelopeSize, "the envelope"});
    const auto add = [&](const Section& section, std::string_view name) {
      if (section.present()) {
        extents.push_back({section.offset, section.offset + section.length, name});
      }
    };
    add(envelope_.header, "the header");
    add(envelope_.directory, "the directory");
    add(envelope_.masks, "the masks section");
    add(envelope_.tokenizer, "the vocab section");
    add(envelope_.index, "the index section");
    for (const DirectoryRecord& record : records) {
      if (record.nbytes == 0) continue;
      const uint64_t begin = envelope_.data.offset + record.offset;
      extents.push_back({begin, begin + record.nbytes, record.name});
    }
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].begin >= extents[i - 1].end) continue;
      on_fault_(Error(ErrorCode::kBounds,
                      fmt::format("{} overlaps {}", extents[i].name, extents[i - 1].name),
                      {path_, "directory", extents[i].begin}));
    }
  }

  const Envelope& envelope_;
  const std::string& path_;
  Bytes section_;
  Bytes pool_;
  DirectoryFault on_fault_;
  uint64_t name_bytes_ = 0;  // of the records read so far
};

template <typename T>
void Append(std::vector<uint8_t>& bytes, T value) {
  const size_t size = bytes.size();
  bytes.resize(size + sizeof(value));
  std::memcpy(bytes.data() + size, &value, sizeof(value));
}

}  // namespace

std::vector<DirectoryRecord> ParseDirectory(Bytes file, const Envelope& envelope,
                                            const std::string& path) {
  return DirectoryParser(file, envelope, path, [](const Error& error) { throw error; }).Parse();
}

std::vector<DirectoryRecord> ParseSoundRecords(Bytes file, const Envelope& envelope,
                                               const std::string& path, DirectoryFault on_fault) {
  return DirectoryParser(file, envelope, path, on_fault).Parse();
}

std::vector<uint8_t> SerializeDirectory(const std::vector<DirectoryRecord>& records) {
  std::vector<uint8_t> bytes;
  Append(bytes, uint64_t{records.size()});
  Append(bytes, kDirectoryHeaderSize + records.size() * kRecordSize);
  uint32_t name_offset = 0;
  for (const DirectoryRecord& record : records) {
    Append(bytes, name_offset);
    Append(bytes, static_cast<uint16_t>(record.name.size()));
    Append(bytes, static_cast<uint8_t>(record.dtype));
    Append(bytes, static_cast<uint8_t>(record.shape.size()));
    for (size_t i = 0; i < kMaxDimensions; ++i) {
      Append(bytes, i < record.shape.size() ? static_cast<uint32_t>(record.shape[i]) : 0u);
    }
    Append(bytes, record.offset);
    Append(bytes, record.nbytes);
    Append(bytes, record.hash);
    name_offset += static_cast<uint32_t>(record.name.size());
  }
  for (const DirectoryRecord& record : records) {
    bytes.insert(bytes.end(), record.name.begin(), record.name.end());
  }
  return bytes;
}

}  // namespace moewe::formats::cmf
