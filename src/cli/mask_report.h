// Task masks as info and mask print them.
#ifndef MOEWE_CLI_MASK_REPORT_H_
#define MOEWE_CLI_MASK_REPORT_H_

#include <string>

#include "base/json.h"
#include "formats/cmf/cmf_file.h"

namespace moewe::cli {

enum class MaskRowsAs { kCounts, kHex };

// A list of the masks' metadata with counts of live entries a row (ffn_popcount, head_popcount,
// expert_popcount, layer_gates), and with kHex the rows themselves (ffn_masks_hex, ...).
Json MaskList(const formats::CmfFile& file, MaskRowsAs rows);

// "1 code · Normal · live: 194 neurons, 12 heads, 3 of 3 layers · quality not measured · default"
std::string MaskLine(const formats::CmfFile& file, const formats::cmf::TaskMask& mask);

// Its metadata and a line a layer, for a person.
void PrintMask(const formats::CmfFile& file, const formats::cmf::TaskMask& mask);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_MASK_REPORT_H_
