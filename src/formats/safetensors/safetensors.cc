#include "formats/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "moewe/error.h"

namespace moewe::formats {
namespace {

struct ElementType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

// All element types of the format; those that moewe reads have a dtype.
constexpr std::array<ElementType, 22> kElementTypes = {{
    {"F32", 32, DType::kF32},         {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBf16},       {"U8", 8, DType::kU8},
    {"BOOL", 8, std::nullopt},        {"I8", 8, std::nullopt},
    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},
    {"I32", 32, std::nullopt},        {"U32", 32, std::nullopt},
    {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},        {"C64", 64, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},     {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},     {"F4", 4, std::nullopt},
}};

// One file being parsed: where messages point to.
class HeaderParser {
 public:
  HeaderParser(Bytes file, const std::string& path) : file_(file), path_(path) {}

  SafetensorsHeader Parse() {
    ByteReader reader(file_, path_);
    const uint64_t length = reader.U64("header length");
    if (length > kSafetensorsHeaderLimit) {
      Fail(ErrorCode::kBounds, "header length",
           "header of " + std::to_string(length) + " bytes, at most " +
               std::to_string(kSafetensorsHeaderLimit) + " are allowed");
    }
    const Bytes text = reader.Take(length, "header");
    if (text.empty() || text.front() != '{') {
      Fail(ErrorCode::kParse, "header", "does not begin with '{'");
    }
    header_.data_offset = reader.absolute_offset();
    data_size_ = reader.remaining();
    const Json json = ParseJson(text, path_, "header", sizeof(uint64_t));
    header_.entries.reserve(json.size());
    for (const auto& [key, value] : json.items()) {
      if (key == "__metadata__") {
        ReadMetadata(value);
      } else {
        ReadEntry(key, value);
      }
    }
    CheckCover();
    return std::move(header_);
  }

 private:
  [[noreturn]] void Fail(ErrorCode code, const std::string& field,
                         const std::string& message) const {
    throw Error(code, message, {path_, field});
  }

  void ReadMetadata(const Json& json) {
    if (!json.is_object()) Fail(ErrorCode::kParse, "header.__metadata__", "is no object");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) {
        Fail(ErrorCode::kParse, "header.__metadata__." + key, "is no string");
      }
      header_.metadata.emplace(key, value.get<std::string>());
    }
  }

  // A list of unsigned integers.
  std::vector<uint64_t> Numbers(const Json& entry, const char* key,
                                const std::string& field) const {
    const auto it = entry.find(key);
    if (it == entry.end() || !it->is_array()) {
      Fail(ErrorCode::kParse, field + "." + key, "is no list of numbers");
    }
    std::vector<uint64_t> numbers;
    numbers.reserve(it->size());
    for (const Json& number : *it) {
      if (!number.is_number_unsigned()) {
        Fail(ErrorCode::kParse, field + "." + key, "holds something that is no unsigned integer");
      }
      numbers.push_back(number.get<uint64_t>());
    }
    return numbers;
  }

  void ReadEntry(const std::string& name, const Json& json) {
    const std::string field = "header[\"" + name + "\"]";
    if (name.empty()) Fail(ErrorCode::kParse, field, "tensor without a name");
    if (!json.is_object()) Fail(ErrorCode::kParse, field, "is no object");
    SafetensorsEntry entry;
    entry.name = name;
    const auto dtype = json.find("dtype");
    if (dtype == json.end() || !dtype->is_string()) {
      Fail(ErrorCode::kParse, field + ".dtype", "is no string");
    }
    entry.dtype_name = dtype->get<std::string>();
    const auto* type = std::find_if(
        kElementTypes.begin(), kElementTypes.end(),
        [&](const ElementType& candidate) { return candidate.name == entry.dtype_name; });
    if (type == kElementTypes.end()) {
      Fail(ErrorCode::kParse, field + ".dtype", "unknown element type '" + entry.dtype_name + "'");
    }
    entry.dtype = type->dtype;
    entry.shape = Numbers(json, "shape", field);
    const std::vector<uint64_t> offsets = Numbers(json, "data_offsets", field);
    if (offsets.size() != 2) {
      Fail(ErrorCode::kParse, field + ".data_offsets", "is not a pair");
    }
    const auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (begin > end || end > data_size_) {
      Fail(ErrorCode::kBounds, field + ".data_offsets",
           "[" + std::to_string(begin) + ", " + std::to_string(end) + ") is outside of the " +
               std::to_string(data_size_) + " data bytes");
    }
    entry.nbytes = end - begin;
    entry.file_offset = header_.data_offset + begin;  // both are within the file

    std::optional<uint64_t> bits = type->bits;
    for (const uint64_t dimension : entry.shape) {
      if (bits) bits = CheckedMul(*bits, dimension);
    }
    if (!bits) Fail(ErrorCode::kBounds, field + ".shape", "the element count overflows");
    if (*bits % 8 != 0 || *bits / 8 != entry.nbytes) {
      Fail(ErrorCode::kBounds, field + ".data_offsets",
           "holds " + std::to_string(entry.nbytes) + " bytes, dtype and shape need " +
               std::to_string(*bits / 8));
    }
    header_.entries.push_back(std::move(entry));
  }

  // Every data byte belongs to exactly one tensor.
  void CheckCover() {
    const auto key = [](const SafetensorsEntry& entry) {
      return std::tie(entry.file_offset, entry.nbytes, entry.name);
    };
    std::sort(
        header_.entries.begin(), header_.entries.end(),
        [&key](const SafetensorsEntry& a, const SafetensorsEntry& b) { return key(a) < key(b); });
    uint64_t expected = header_.data_offset;
    for (const SafetensorsEntry& entry : header_.entries) {
      if (entry.file_offset != expected) {
        throw Error(ErrorCode::kBounds,
                    entry.file_offset < expected ? "overlaps the tensor before it"
                                                 : "leaves a hole after the tensor before it",
                    {path_, "header[\"" + entry.name + "\"].data_offsets", entry.file_offset});
      }
      expected += entry.nbytes;
    }
    if (expected != header_.data_offset + data_size_) {
      throw Error(ErrorCode::kBounds, "bytes after the last tensor", {path_, "data", expected});
    }
  }

  Bytes file_;
  const std::string& path_;
  uint64_t data_size_ = 0;
  SafetensorsHeader header_;
};

}  // namespace

bool LooksLikeSafetensors(Bytes file) {
  if (file.size() < 9 || file[8] != '{') return false;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  return length <= file.size() - 8 || length <= kSafetensorsHeaderLimit;
}

SafetensorsHeader ParseSafetensors(Bytes file, const std::string& path) {
  return HeaderParser(file, path).Parse();
}

TensorView ViewOf(SafetensorsEntry&& entry, Bytes file, uint32_t file_index) {
  TensorView view;
  view.name = std::move(entry.name);
  view.dtype = entry.dtype.value();
  view.shape = std::move(entry.shape);
  view.bytes =
      file.subspan(static_cast<size_t>(entry.file_offset), static_cast<size_t>(entry.nbytes));
  view.file_index = file_index;
  view.file_offset = entry.file_offset;
  return view;
}

OpaqueTensor OpaqueOf(SafetensorsEntry&& entry, Bytes file, uint32_t file_index) {
  OpaqueTensor tensor;
  tensor.name = std::move(entry.name);
  tensor.dtype = std::move(entry.dtype_name);
  tensor.shape = std::move(entry.shape);
  tensor.nbytes = entry.nbytes;
  tensor.bytes =
      file.subspan(static_cast<size_t>(entry.file_offset), static_cast<size_t>(entry.nbytes));
  tensor.file_index = file_index;
  tensor.file_offset = entry.file_offset;
  return tensor;
}

}  // namespace moewe::formats
