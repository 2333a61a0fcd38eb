// Scratch memory that only grows, aligned for the widest vectors and for cache lines.
#ifndef MOEWE_KERNELS_ALIGNED_BUFFER_H_
#define MOEWE_KERNELS_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>

namespace moewe::kernels {

// Elements of T, which must be trivial: they start uninitialized, and Need() forgets them.
template <typename T>
class AlignedBuffer {
 public:
  T* Need(size_t n) {
    if (n > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<T*>(::operator new(n * sizeof(T), kAlign)));
      size_ = n;
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Delete {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<T[], Delete> data_;
  size_t size_ = 0;
};

}  // namespace moewe::kernels

#endif  // MOEWE_KERNELS_ALIGNED_BUFFER_H_
