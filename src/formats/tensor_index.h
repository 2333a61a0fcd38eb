// Tensor views in order, with lookup by name.
#ifndef MOEWE_FORMATS_TENSOR_INDEX_H_
#define MOEWE_FORMATS_TENSOR_INDEX_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/checkpoint.h"

namespace moewe::formats {

// Built once, then read from any thread.
class TensorIndex {
 public:
  void Reserve(size_t n) {
    views_.reserve(n);
    by_name_.reserve(n);
  }

  // False, and nothing added, if the name is taken.
  bool Add(TensorView view) {
    if (!by_name_.emplace(view.name, views_.size()).second) return false;
    views_.push_back(std::move(view));
    return true;
  }

  const TensorView* Find(std::string_view name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &views_[it->second];
  }

  const std::vector<TensorView>& views() const { return views_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<TensorView> views_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> by_name_;
};

}  // namespace moewe::formats

#endif  // MOEWE_FORMATS_TENSOR_INDEX_H_
