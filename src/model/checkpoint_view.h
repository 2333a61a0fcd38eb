// A checkpoint with other tensors than the one below it, everything else being that one's.
#ifndef MOEWE_MODEL_CHECKPOINT_VIEW_H_
#define MOEWE_MODEL_CHECKPOINT_VIEW_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/tensor_index.h"

namespace moewe::model {

class CheckpointView : public formats::Checkpoint {
 public:
  // Without tensors, which the derived class adds.
  explicit CheckpointView(std::shared_ptr<const formats::Checkpoint> base)
      : base_(std::move(base)) {}

  formats::CheckpointKind kind() const override { return base_->kind(); }
  const std::vector<std::string>& files() const override { return base_->files(); }
  const std::vector<formats::TensorView>& tensors() const override { return index_.views(); }
  const formats::TensorView* Find(std::string_view name) const override {
    return index_.Find(name);
  }
  const std::vector<formats::OpaqueTensor>& opaque_tensors() const override {
    return base_->opaque_tensors();
  }
  void CheckReadable() const override { base_->CheckReadable(); }
  const nlohmann::ordered_json& config() const override { return base_->config(); }
  Bytes tokenizer_json() const override { return base_->tokenizer_json(); }
  const nlohmann::ordered_json& chat_bundle() const override { return base_->chat_bundle(); }

  const formats::Checkpoint& base() const { return *base_; }

 protected:
  formats::TensorIndex index_;

 private:
  std::shared_ptr<const formats::Checkpoint> base_;
};

}  // namespace moewe::model

#endif  // MOEWE_MODEL_CHECKPOINT_VIEW_H_
