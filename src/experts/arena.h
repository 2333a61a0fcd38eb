// What streamed experts are read into.
#ifndef MOEWE_EXPERTS_ARENA_H_
#define MOEWE_EXPERTS_ARENA_H_

#include "platform/huge_memory.h"

namespace moewe::experts {

using Arena = HugeMemory;

}  // namespace moewe::experts

#endif  // MOEWE_EXPERTS_ARENA_H_
