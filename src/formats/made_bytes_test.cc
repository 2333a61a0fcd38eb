// Bytes are made for the first who holds them, and go with the last.
#include "formats/made_bytes.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "moewe/error.h"

namespace moewe::formats {
namespace {

struct Subject {
  TensorView tensor;
  int times = 0;
  bool fails = false;

  Subject() {
    tensor.made = std::make_shared<MadeBytes>(10000, [this](std::span<uint8_t> out) {
      if (fails) throw Error(ErrorCode::kParse, "bad", {"", ""});
      EXPECT_EQ(out[9999], 0);
      out[9999] = static_cast<uint8_t>(++times);
    });
    tensor.bytes = tensor.made->bytes();
  }
};

TEST(MadeBytes, AreMadeWhileSomebodyHoldsThem) {
  Subject subject;
  {
    HeldBytes first(subject.tensor);
    EXPECT_EQ(subject.tensor.bytes[9999], 1);
    std::optional<HeldBytes> second(subject.tensor);
    HeldBytes moved(std::move(first));
    EXPECT_EQ(subject.tensor.bytes[9999], 1);
    second.reset();
    EXPECT_EQ(subject.tensor.bytes[9999], 1);
  }
  const HeldBytes again(subject.tensor);
  EXPECT_EQ(subject.tensor.bytes[9999], 2);
  EXPECT_EQ(subject.times, 2);
}

TEST(MadeBytes, AFailureLeavesThemUnmade) {
  Subject subject;
  subject.fails = true;
  EXPECT_THROW(HeldBytes{subject.tensor}, Error);
  subject.fails = false;
  const HeldBytes held(subject.tensor);
  EXPECT_EQ(subject.tensor.bytes[9999], 1);
}

TEST(MadeBytes, BytesThatAreThereNeedNothing) {
  const TensorView plain;
  const HeldBytes held(plain);
  EXPECT_TRUE(plain.bytes.empty());
}

}  // namespace
}  // namespace moewe::formats
