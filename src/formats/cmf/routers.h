// Whether the routers of a directory fit its experts.
#ifndef MOEWE_FORMATS_CMF_ROUTERS_H_
#define MOEWE_FORMATS_CMF_ROUTERS_H_

#include <string>
#include <vector>

#include "formats/cmf/directory.h"

namespace moewe::formats::cmf {

// A router has a row an expert, and experts are numbered from 0 without gaps (section 11.1): tells
// `on_fault` (kParse) of each layer "model.layers.N.mlp" of which that is not so. Layers whose
// experts have other names are passed by.
void CheckRouters(const std::vector<DirectoryRecord>& records, const std::string& path,
                  DirectoryFault on_fault);

}  // namespace moewe::formats::cmf

#endif  // MOEWE_FORMATS_CMF_ROUTERS_H_
