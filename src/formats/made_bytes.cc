#include "formats/made_bytes.h"

namespace moewe::formats {

void MadeBytes::Hold() {
  const std::lock_guard lock(mutex_);
  if (holders_ == 0) {
    memory_.Use();
    try {
      make_(memory_.memory());
    } catch (...) {
      memory_.GiveBack();
      throw;
    }
  }
  ++holders_;
}

void MadeBytes::Release() {
  const std::lock_guard lock(mutex_);
  if (--holders_ == 0) memory_.GiveBack();
}

}  // namespace moewe::formats
