#include "kernels/isa.h"

#include <hwy/targets.h>
#include <cstdlib>
#include <string_view>

#include "kernels/compute.h"
#include "platform/cpu_features.h"

namespace moewe::kernels {
namespace {

Isa Decide() {
  const CpuFeatures& cpu = GetCpuFeatures();
#if defined(__aarch64__)
  Isa isa = Isa::kNeon;
#else
  Isa isa = cpu.avx512_vnni ? Isa::kAvx512Vnni : cpu.avx2 ? Isa::kAvx2 : Isa::kScalar;
#endif
  const char* wish = std::getenv("MOEWE_ISA");
  if (wish != nullptr) {
    if (std::string_view(wish) == "scalar") isa = Isa::kScalar;
    if (std::string_view(wish) == "avx2" && cpu.avx2) isa = Isa::kAvx2;
  }
  // The f32 code dispatches through Highway, which must not use more than was asked for.
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
#endif
  return isa;
}

}  // namespace

Isa ActiveIsa() {
  static const Isa isa = Decide();
  return isa;
}

const char* KernelIsaName() {
  switch (ActiveIsa()) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "AVX2";
    case Isa::kAvx512Vnni:
      return "AVX-512 VNNI";
    case Isa::kNeon:
      return "NEON (integer products scalar)";
  }
  return "";
}

}  // namespace moewe::kernels
