#include "formats/safetensors/safetensors_header.h"

#include <cstring>
#include <tuple>

#include "base/json.h"
#include "formats/safetensors/safetensors.h"
#include "moewe/error.h"

namespace moewe::formats {
namespace {

const char* TypeName(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return "F16";
    case DType::kBf16:
      return "BF16";
    default:
      return "F32";
  }
}

// The library's order of element types, f32 first.
int TypeRank(DType dtype) { return dtype == DType::kF32 ? 0 : dtype == DType::kBf16 ? 1 : 2; }

}  // namespace

bool SafetensorsOrder(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return std::tuple(TypeRank(a.dtype), a.name) < std::tuple(TypeRank(b.dtype), b.name);
}

std::string SafetensorsHeaderBytes(const std::vector<SafetensorsTensor>& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    json[tensor.name] = {{"dtype", TypeName(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, offset + tensor.nbytes}}};
    offset += tensor.nbytes;
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  if (length > kSafetensorsHeaderLimit) {
    throw Error(ErrorCode::kBounds, "too many tensors for a safetensors header");
  }
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

}  // namespace moewe::formats
