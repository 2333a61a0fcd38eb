// The sampler's random numbers: xoshiro256++ (Blackman and Vigna, 2018), seeded through splitmix64.
//
// Defined here and not taken from <random>, whose distributions differ between standard libraries:
// the same seed gives the same text everywhere.
#ifndef MOEWE_ENGINE_RANDOM_H_
#define MOEWE_ENGINE_RANDOM_H_

#include <array>
#include <bit>
#include <cstdint>

namespace moewe::engine {

// Not thread-safe; copyable, a copy continues with the same numbers.
class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {  // splitmix64, as the authors advise
      seed += 0x9E3779B97F4A7C15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace moewe::engine

#endif  // MOEWE_ENGINE_RANDOM_H_
