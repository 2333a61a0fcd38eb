// What the CPU can do and how much of it this process may use.
#ifndef MOEWE_PLATFORM_CPU_FEATURES_H_
#define MOEWE_PLATFORM_CPU_FEATURES_H_

#include <string>
#include <vector>

namespace moewe {

// Only what a kernel of ours asks for.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C and BMI2: what our AVX2 kernels use
  bool avx512_vnni = false;  // avx2 and AVX-512 F, BW, DQ, VL, VBMI and VNNI
};

// Measured once.
const CpuFeatures& GetCpuFeatures();

// The CPUs of this process's affinity mask, ascending; never empty.
std::vector<int> AllowedCpus();

// Whole CPUs' worth of time that the tightest cgroup (v1 or v2) around this process grants, rounded
// up; 0 if none limits it. `root` is the cgroup mount, `proc_cgroup` the process's membership file.
int CgroupCpuLimit(const std::string& root = "/sys/fs/cgroup",
                   const std::string& proc_cgroup = "/proc/self/cgroup");

// min(AllowedCpus().size(), CgroupCpuLimit()), at least 1.
int UsableCpus();

}  // namespace moewe

#endif  // MOEWE_PLATFORM_CPU_FEATURES_H_
