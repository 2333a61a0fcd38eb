// The trunk of a streamed model: everything but its routed experts, read once into memory of its
// own. There it is counted and never evicted, and it leaves nothing in the page cache.
#ifndef MOEWE_MODEL_TRUNK_MEMORY_H_
#define MOEWE_MODEL_TRUNK_MEMORY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "experts/arena.h"
#include "formats/checkpoint.h"
#include "model/weights.h"
#include "platform/disk_reader.h"

namespace moewe::model {

// What ReadTrunk takes: the tensors with their pages' edges. Looks at places only.
uint64_t TrunkMemoryBytes(std::span<const formats::TensorView> tensors,
                          std::span<const TensorUse> uses);

// Reads all trunk tensors that are in files and lets their views point to where they are now, which
// lives as long as the result. `reader` has the checkpoint's files. A read that fails is repeated
// once. Throws Error{kIo} naming file and offset, {kOutOfBudget} if the memory can't be had.
std::unique_ptr<experts::Arena> ReadTrunk(const formats::Checkpoint& checkpoint,
                                          std::span<const TensorUse> uses,
                                          std::unique_ptr<DiskReader> reader,
                                          std::vector<formats::TensorView>* tensors);

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TRUNK_MEMORY_H_
