#include "kernels/isa.h"

#include <hwy/targets.h>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/compute.h"
#include "moewe/error.h"
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
  const char* variable = std::getenv("MOEWE_ISA");
  const std::string_view wish = variable == nullptr ? "" : variable;
  if (wish == "scalar") {
    isa = Isa::kScalar;
  } else if (wish == "avx2" && cpu.avx2) {
    isa = Isa::kAvx2;
  } else if (!wish.empty() && !(wish == "avx512" && cpu.avx512_vnni)) {
    throw Error(ErrorCode::kUnknownName, "MOEWE_ISA=" + std::string(wish) +
                                             ": not scalar, avx2 or avx512, or not on this CPU");
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
