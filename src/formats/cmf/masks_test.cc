// A masks section that is small itself must not make much of itself.
#include "formats/cmf/masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/json.h"
#include "moewe/error.h"
#include "thrown.h"

namespace moewe::formats::cmf {
namespace {

Header SmallModel() {
  Header header;
  header.num_layers = 4;
  header.intermediate_size = 64;
  header.num_attention_heads = 2;
  return header;
}
constexpr size_t kBlob = 4 * (64 / 8) + 4 * 1 + 1;

// A section whose `count` masks all have the one blob, in which nothing is dead.
std::vector<uint8_t> SharedBlob(size_t count) {
  const auto text = [&](size_t blob_off) {
    Json list = Json::array();
    for (size_t i = 0; i < count; ++i) {
      list.push_back({{"task_id", i},
                      {"name", std::to_string(i)},
                      {"blob_off", blob_off},
                      {"blob_len", kBlob}});
    }
    return Json{{"masks", std::move(list)}}.dump();
  };
  const size_t blob_off = (8 + text(1'000'000).size() + 7) / 8 * 8;
  const std::string meta = text(blob_off);
  std::vector<uint8_t> section(blob_off + kBlob, 0);
  const std::array<uint32_t, 2> head = {static_cast<uint32_t>(count),
                                        static_cast<uint32_t>(meta.size())};
  std::memcpy(section.data(), head.data(), sizeof(head));
  std::copy(meta.begin(), meta.end(), section.begin() + sizeof(head));
  std::fill_n(section.begin() + static_cast<ptrdiff_t>(blob_off), 4 * 8, uint8_t{0xff});
  std::fill_n(section.begin() + static_cast<ptrdiff_t>(blob_off) + 4 * 8, 4, uint8_t{3});
  section.back() = 0xf;
  return section;
}

MaskCatalog Parse(Bytes section, const Header& header) {
  Envelope envelope;
  envelope.masks = {0, section.size()};
  return ParseMasks(section, envelope, header, "f");
}

TEST(MasksTest, OneMaskReads) {
  const std::vector<uint8_t> section = SharedBlob(1);
  const MaskCatalog catalog = Parse(section, SmallModel());
  ASSERT_EQ(catalog.masks.size(), 1u);
  EXPECT_EQ(LiveBits(catalog.masks[0].ffn_rows[3]), 64u);
  EXPECT_EQ(LiveBits(catalog.masks[0].head_rows[0]), 2u);
}

// A list of names costs a few bytes a mask, each of which has rows for all layers.
TEST(MasksTest, BlobsThatShareBytes) {
  std::string message;
  EXPECT_EQ(Thrown([&] { Parse(SharedBlob(2), SmallModel()); }, &message), ErrorCode::kParse);
  EXPECT_NE(message.find("behind the metadata"), std::string::npos) << message;
}

TEST(MasksTest, AModelWithoutHeads) {
  Header header = SmallModel();
  header.num_attention_heads = 0;
  EXPECT_EQ(Thrown([&] { Parse(SharedBlob(1), header); }), ErrorCode::kParse);
}

}  // namespace
}  // namespace moewe::formats::cmf
