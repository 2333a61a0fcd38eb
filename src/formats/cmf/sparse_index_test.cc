// The sparse index: what its bytes may be, and that it says what the masks say.
#include "formats/cmf/sparse_index.h"

#include <gtest/gtest.h>

#include <cstring>

#include "formats/cmf/cmf_file.h"
#include "formats/test_util.h"
#include "golden.h"

namespace moewe::formats::cmf {
namespace {

class SparseIndexTest : public testing::Test {
 protected:
  explicit SparseIndexTest(const char* name = "masks_llama_q8row")
      : file_(CmfFile::Open(golden::Path("cmf/files/" + std::string(name) + ".cmf").string())),
        contents_(file_->contents()),
        entries_(contents_.sparse_index),
        section_(SectionBytes(file_->file_bytes(), contents_.envelope.index)) {}

  // What CheckSparseIndex says of `entries_`; empty if nothing.
  std::string Problem() const {
    std::string message;
    const auto code = Thrown(
        [&] { CheckSparseIndex(entries_, contents_.masks, contents_.header, {"f", "index", {}}); },
        &message);
    EXPECT_TRUE(!code || code == ErrorCode::kParse);
    return message;
  }
  static std::vector<SparseEntry> Parse(Bytes section) {
    Envelope envelope;
    envelope.index = {0, section.size()};
    return ParseSparseIndex(section, envelope, "f");
  }

  std::unique_ptr<CmfFile> file_;
  const CmfContents& contents_;
  std::vector<SparseEntry> entries_;
  Bytes section_;
};

TEST_F(SparseIndexTest, TheGoldenOneAgreesWithItsMasks) {
  ASSERT_GT(entries_.size(), 4u);
  EXPECT_EQ(Problem(), "");
}

TEST_F(SparseIndexTest, EveryContradictionIsNamed) {
  const std::vector<SparseEntry> good = entries_;
  const auto problem = [&](const auto& change) {
    entries_ = good;
    change(entries_[1]);
    return Problem();
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(problem([](SparseEntry& e) { e.task_id = 77; }), "unknown task 77"));
  EXPECT_TRUE(contains(problem([](SparseEntry& e) { e.layer = 3; }), "of layer 3"));
  EXPECT_TRUE(contains(problem([&](SparseEntry& e) { e = good[0]; }), "the second of mask"));
  const auto out_of_order = [&](const auto& change) {
    return contains(problem(change), "out of order or out of range");
  };
  EXPECT_TRUE(out_of_order([](SparseEntry& e) { std::swap(e.ffn_groups[0], e.ffn_groups[1]); }));
  EXPECT_TRUE(out_of_order([](SparseEntry& e) { e.ffn_groups[1] = e.ffn_groups[0]; }));
  EXPECT_TRUE(out_of_order([](SparseEntry& e) { e.ffn_groups.back() = 3; }));  // 96 neurons
  EXPECT_TRUE(out_of_order([](SparseEntry& e) { e.heads.back() = 4; }));
  const auto differs = [&](const auto& change) {
    return contains(problem(change), "differs from mask 'general' in layer 1");
  };
  EXPECT_TRUE(differs([](SparseEntry& e) { e.ffn_groups.pop_back(); }));
  EXPECT_TRUE(differs([](SparseEntry& e) { e.heads.clear(); }));
}

TEST_F(SparseIndexTest, TheSectionEndsWithItsEntries) {
  EXPECT_EQ(Parse(section_).size(), entries_.size());
  for (size_t size = 1; size < section_.size(); ++size) {
    EXPECT_EQ(Thrown([&] { Parse(section_.first(size)); }), ErrorCode::kParse) << size;
  }
}

// Counts allocate nothing before there are bytes for them.
TEST_F(SparseIndexTest, CountsThatLie) {
  const std::vector<uint8_t> good(section_.begin(), section_.end());
  for (const size_t field : {size_t{0}, size_t{8 + 8}, size_t{8 + 12}}) {
    for (const uint32_t lie : {0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      std::vector<uint8_t> bytes = good;
      std::memcpy(bytes.data() + field, &lie, sizeof(lie));
      EXPECT_EQ(Thrown([&] { Parse(bytes); }), ErrorCode::kParse) << field;
    }
  }
}

}  // namespace
}  // namespace moewe::formats::cmf
