// No include guard: closes the region that target_begin.h opened.
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef MOEWE_TARGET_PRAGMA
#undef MOEWE_TARGET_PRAGMA_
