// The trunk of a streamed model: everything but its routed experts, read once into memory of its
// own. There it is counted and never evicted, and it leaves nothing in the page cache.
#ifndef MOEWE_MODEL_TRUNK_MEMORY_H_
#define MOEWE_MODEL_TRUNK_MEMORY_H_

#include <cstdint>
#include <functional>
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

// The trunk of one model after another over the same files, as with skills that take turns: what
// the next one needs as well stays where it is. One thread at a time.
class TrunkMemory {
 public:
  using MakeReader = std::function<std::unique_ptr<DiskReader>()>;

  // As ReadTrunk, which reads what is not there; all else that is there is given back, so that the
  // model that had it before must be gone. `make_reader` is called if something has to be read.
  // Throws as ReadTrunk; what was there and is needed still is, then.
  void Hold(const formats::Checkpoint& checkpoint, std::span<const TensorUse> uses,
            const MakeReader& make_reader, std::vector<formats::TensorView>* tensors);

 private:
  // Pages of a file and where they are.
  struct Part {
    uint32_t file = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint8_t* at = nullptr;
  };

  const Part* Find(const formats::TensorView& tensor) const;
  void KeepOnly(std::span<const Part> needed);

  std::vector<Part> parts_;  // by file and place
  std::vector<std::unique_ptr<experts::Arena>> arenas_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TRUNK_MEMORY_H_
