// The binary tensor directory of a CMF file (section 3).
#ifndef MOEWE_FORMATS_CMF_DIRECTORY_H_
#define MOEWE_FORMATS_CMF_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "base/function_ref.h"
#include "formats/cmf/envelope.h"
#include "quant/dtype.h"

namespace moewe::formats::cmf {

inline constexpr size_t kMaxDimensions = 6;
inline constexpr uint64_t kDirectoryHeaderSize = 16;
inline constexpr uint64_t kRecordSize = 56;

struct DirectoryRecord {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // relative to the data section
  uint64_t nbytes = 0;
  uint64_t hash = 0;  // 0 = not protected
};

// Parses the directory and checks every record: names (UTF-8, not empty, unique), dtype ids,
// shapes, sizes against dtype and shape, alignment, that each tensor lies in the data section, and
// that no two tensors and no tensor and another section share bytes. Allocates in proportion to the
// section's length only. Throws Error{kParse, kBounds}.
std::vector<DirectoryRecord> ParseDirectory(Bytes file, const Envelope& envelope,
                                            const std::string& path);

using DirectoryFault = FunctionRef<void(const Error& error)>;

// As ParseDirectory for whoever wants to know all that is wrong: goes on after a faulty record,
// name or overlap, tells `on_fault` of each, and returns the records whose own fields are right.
// Throws only where there are no records to speak of.
std::vector<DirectoryRecord> ParseSoundRecords(Bytes file, const Envelope& envelope,
                                               const std::string& path, DirectoryFault on_fault);

// The section's bytes. Names are pooled in record order.
std::vector<uint8_t> SerializeDirectory(const std::vector<DirectoryRecord>& records);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_DIRECTORY_H_
