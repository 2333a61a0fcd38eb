// The trunk of a streamed model: everything but its routed experts, read once into memory of its
// own. There it is counted and never evicted, and it leaves nothing in the page cache.
#ifndef MOEWE_MODEL_TRUNK_MEMORY_H_
#define MOEWE_MODEL_TRUNK_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "formats/checkpoint.h"
#include "model/weights.h"
#include "platform/disk_reader.h"
#include "platform/huge_memory.h"

namespace moewe::model {

// What a trunk takes: its tensors with their pages' edges. Looks at places only.
uint64_t TrunkMemoryBytes(std::span<const formats::TensorView> tensors,
                          std::span<const TensorUse> uses);

// The trunk of one model after another over the same files, as with skills that take turns: what
// the next one needs as well stays where it is. One thread at a time.
class TrunkMemory {
 public:
  using MakeReader = std::function<std::unique_ptr<DiskReader>()>;

  // Lets the views of all trunk tensors that are in files point to where they are here, as long as
  // it lives, and reads those that are not there. All else that is there is given back, so that the
  // model that had it before must be gone. `make_reader`, for the checkpoint's files, is called if
  // something has to be read. A read that fails is repeated once. Throws Error{kIo} naming file and
  // offset, {kOutOfBudget} if the memory can't be had; what was there and is needed still is, then.
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
  std::vector<std::unique_ptr<HugeMemory>> arenas_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_TRUNK_MEMORY_H_
