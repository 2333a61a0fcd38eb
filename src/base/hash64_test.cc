#include "base/hash64.h"

#include "golden.h"

namespace moewe {
namespace {

TEST(Hash64, AgreesWithGoldenVectorsInPiecesOfAnySize) {
  const nlohmann::json file = golden::ReadJson(golden::Path("cmf/hash64/hash64.json"));
  for (const nlohmann::json& vector : file["vectors"]) {
    const std::vector<uint8_t> bytes = golden::FromHex(vector["hex"]);
    ASSERT_EQ(bytes.size(), vector["len"].get<size_t>());
    const std::string expected = vector["hash64"];
    EXPECT_EQ(HashToHex(HashBytes(bytes)), expected);
    for (size_t step : {1u, 3u, 8u, 13u}) {
      Hash64 hash;
      for (size_t i = 0; i < bytes.size(); i += step) {
        hash.Update(Bytes(bytes).subspan(i, std::min(step, bytes.size() - i)));
      }
      EXPECT_EQ(HashToHex(hash.Digest()), expected) << "in pieces of " << step;
    }
  }
}

}  // namespace
}  // namespace moewe
