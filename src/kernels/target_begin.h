// No include guard: opens a region whose functions are compiled for MOEWE_TARGET (a string);
// target_end.h closes it. Everything from the standard library must be included before.
#if defined(__clang__)
#define MOEWE_TARGET_PRAGMA_(x) _Pragma(#x)
#define MOEWE_TARGET_PRAGMA(x) MOEWE_TARGET_PRAGMA_(x)
MOEWE_TARGET_PRAGMA(clang attribute push(__attribute__((target(MOEWE_TARGET))),
                                         apply_to = function))
#else
#pragma GCC push_options
#define MOEWE_TARGET_PRAGMA_(x) _Pragma(#x)
#define MOEWE_TARGET_PRAGMA(x) MOEWE_TARGET_PRAGMA_(x)
MOEWE_TARGET_PRAGMA(GCC target(MOEWE_TARGET))
#endif

// For what an inner loop is made of: GCC's own judgement leaves functions of a few vectors as
// calls, with their arguments in memory.
#if !defined(MOEWE_INLINE)
#define MOEWE_INLINE inline __attribute__((always_inline))
#endif
