#include "formats/signature.h"

#include <sys/stat.h>

#include <fstream>

#include "formats/test_util.h"
#include "formats/verify.h"
#include "golden.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

std::string Golden(const char* name) {
  return golden::Path("cmf/files/" + std::string(name)).string();
}

std::string Text(const std::string& path) {
  const std::vector<uint8_t> bytes = golden::ReadBytes(path);
  return {bytes.begin(), bytes.end()};
}

constexpr auto kNoProgress = [](uint64_t, uint64_t) {};

class SignatureTest : public ScratchTest {
 protected:
  VerifyReport Check(const std::string& path) {
    ThreadPool pool(2);
    return Verify(path, {}, &pool, kNoProgress);
  }
};

TEST_F(SignatureTest, AcceptsTheGoldenSignatureAndWritesTheSame) {
  const nlohmann::json golden_sig = golden::ReadJson(Golden("signed.cmf.sig"));
  EXPECT_EQ(CheckSignature(Golden("signed.cmf"), kNoProgress),
            golden_sig["pubkey"].get<std::string>());

  const std::string model = Put("model.cmf", Text(Golden("signed.cmf")));
  const SigningKey key = SigningKey::Read(Golden("signed.key.hex"));
  EXPECT_EQ(key.PublicKey(), golden_sig["pubkey"].get<std::string>());
  key.Sign(model, kNoProgress);  // Ed25519 signatures are deterministic
  EXPECT_EQ(golden::ReadJson(SignaturePath(model)), golden_sig);
  EXPECT_EQ(Check(model).signed_by, golden_sig["pubkey"].get<std::string>());
}

TEST_F(SignatureTest, RefusesEveryBrokenGoldenSignature) {
  const std::string model = Put("model.cmf", Text(Golden("signed.cmf")));
  for (const nlohmann::json& bad : golden::ReadJson(Golden("signed.bad_sigs.json"))) {
    Put("model.cmf.sig", bad["sig"].dump());
    const VerifyReport report = Check(model);
    ASSERT_FALSE(report.ok()) << bad["name"];
    EXPECT_TRUE(report.signed_by.empty());
  }
}

TEST_F(SignatureTest, MalformedSignatureFilesNameTheField) {
  const std::string model = Put("model.cmf", Text(Golden("signed.cmf")));
  const nlohmann::json good = golden::ReadJson(Golden("signed.cmf.sig"));
  for (const char* key : {"alg", "pubkey", "sha256", "sig"}) {
    for (const nlohmann::json& value : {nlohmann::json(7), nlohmann::json("zz")}) {
      nlohmann::json sig = good;
      sig[key] = value;
      Put("model.cmf.sig", sig.dump());
      const VerifyReport report = Check(model);
      ASSERT_EQ(report.problems.size(), 1u) << sig;
      EXPECT_EQ(report.problems[0].where.field, key);
    }
  }
  for (const char* text : {"", "[]", "{", "null"}) {
    Put("model.cmf.sig", text);
    EXPECT_EQ(Thrown([&] { CheckSignature(model, kNoProgress); }), ErrorCode::kParse) << text;
  }
}

TEST_F(SignatureTest, OneFlippedBitOfTheFileIsFound) {
  std::string content = Text(Golden("signed.cmf"));
  const std::string model = Put("model.cmf", content);
  Put("model.cmf.sig", Text(Golden("signed.cmf.sig")));
  CheckSignature(model, kNoProgress);
  content.back() = static_cast<char>(content.back() ^ 1);
  Put("model.cmf", content);
  EXPECT_EQ(Thrown([&] { CheckSignature(model, kNoProgress); }), ErrorCode::kHashMismatch);
}

TEST_F(SignatureTest, NewKeysArePrivateAndNeverReplaceAFile) {
  const std::string path = At("new.key");
  const SigningKey key = SigningKey::Create(path);
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(SigningKey::Read(path).PublicKey(), key.PublicKey());
  EXPECT_EQ(Thrown([&] { SigningKey::Create(path); }), ErrorCode::kUsage);
  EXPECT_EQ(SigningKey::Read(path).PublicKey(), key.PublicKey());
  EXPECT_EQ(Thrown([&] { SigningKey::Read(Put("bad.key", "12")); }), ErrorCode::kParse);
  EXPECT_EQ(Thrown([&] { SigningKey::Read(At("none.key")); }), ErrorCode::kNotFound);
}

TEST_F(SignatureTest, StandaloneSkillNamesItsBase) {
  ThreadPool pool(2);
  const auto check = [&](const char* base) {
    return Verify(Golden("gfx.skill.cmf"), {.base = Golden(base)}, &pool, kNoProgress);
  };
  EXPECT_TRUE(check("skill_base.cmf").ok());
  const VerifyReport other = check("signed.cmf");
  ASSERT_EQ(other.problems.size(), 1u);
  EXPECT_EQ(other.problems[0].code, ErrorCode::kHashMismatch);
  EXPECT_EQ(other.problems[0].where.field, "header.skills[0].base_dir_hash");
  EXPECT_EQ(Thrown([&] {
              Verify(Golden("signed.cmf"), {.base = Golden("skill_base.cmf")}, &pool, kNoProgress);
            }),
            ErrorCode::kUsage);
}

}  // namespace
}  // namespace moewe::formats
