// The reader against the golden files: every good one as described, every bad one refused with its
// class.
#include "formats/cmf/cmf_file.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/bytes_of.h"
#include "base/hash64.h"
#include "formats/cmf/limits.h"
#include "formats/test_util.h"
#include "golden.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

std::string Hex(Bytes bytes) {
  std::string hex;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

int PopCount(Bytes bytes) {
  int count = 0;
  for (const uint8_t byte : bytes) count += __builtin_popcount(byte);
  return count;
}

// Golden files with a description.
std::vector<std::string> GoodFiles() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden::Path("cmf/files"))) {
    const std::string name = entry.path().filename().string();
    const std::string suffix = ".expected.json";
    if (!name.ends_with(suffix)) continue;
    const nlohmann::json expected = golden::ReadJson(entry.path());
    if (expected.contains("envelope")) names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

class CmfGoodFile : public testing::TestWithParam<std::string> {
 protected:
  nlohmann::json expected_ =
      golden::ReadJson(golden::Path("cmf/files/" + GetParam() + ".expected.json"));
  std::string path_ = golden::Path("cmf/files/" + expected_["file"].get<std::string>()).string();
};

void ExpectEnvelope(const cmf::Envelope& envelope, const nlohmann::json& expected) {
  const auto section = [&](const cmf::Section& actual, const std::string& name) {
    EXPECT_EQ(actual.offset, expected[name + "_off"]) << name;
    EXPECT_EQ(actual.length, expected[name + "_len"]) << name;
  };
  section(envelope.header, "header");
  section(envelope.directory, "dir");
  section(envelope.data, "data");
  section(envelope.masks, "masks");
  section(envelope.tokenizer, "vocab");
  section(envelope.index, "index");
  EXPECT_EQ(HashToHex(envelope.header_hash), expected["header_hash"].get<std::string>());
  EXPECT_EQ(HashToHex(envelope.directory_hash), expected["dir_hash"].get<std::string>());
}

void ExpectMask(const cmf::TaskMask& mask, const nlohmann::json& expected) {
  EXPECT_EQ(mask.name, expected["name"].get<std::string>());
  EXPECT_EQ(mask.task_id, expected["task_id"]);
  for (const char* key : {"description", "priority", "quality", "parent", "has_hot_pack"}) {
    EXPECT_EQ(nlohmann::json::parse(mask.meta.value(key, Json()).dump()), expected[key]) << key;
  }
  const auto rows = [&](const std::vector<Bytes>& actual, const char* kind) {
    nlohmann::json hex = nlohmann::json::array();
    nlohmann::json counts = nlohmann::json::array();
    for (const Bytes row : actual) {
      hex.push_back(Hex(row));
      counts.push_back(PopCount(row));
    }
    EXPECT_EQ(hex, expected[kind + std::string("_masks_hex")]);
    EXPECT_EQ(counts, expected[kind + std::string("_popcount")]);
  };
  rows(mask.ffn_rows, "ffn");
  rows(mask.head_rows, "head");
  rows(mask.expert_rows, "expert");
  // Described a visit; the file has one gate a physical layer, which counts for every pass.
  nlohmann::json gates = nlohmann::json::array();
  for (size_t i = 0; i < expected["layer_gates"].size(); ++i) {
    gates.push_back(bool{mask.layer_gates[i % mask.layer_gates.size()]});
  }
  EXPECT_EQ(gates, expected["layer_gates"]);
}

TEST_P(CmfGoodFile, ReadsAsDescribed) {
  const auto file = CmfFile::Open(path_);
  const CmfContents& contents = file->contents();
  ExpectEnvelope(contents.envelope, expected_["envelope"]);
  EXPECT_EQ(file->file_bytes().size(), expected_["envelope"]["file_len"]);
  EXPECT_EQ(contents.envelope.required_features, expected_["required_features"]);
  EXPECT_EQ(nlohmann::json::parse(file->config().dump()), expected_["header"]);
  EXPECT_EQ(file->tokenizer_json().size(), expected_["envelope"]["vocab_len"]);

  ASSERT_EQ(file->tensors().size(), expected_["tensors"].size());
  for (const nlohmann::json& tensor : expected_["tensors"]) {
    const TensorView* view = file->Find(tensor["name"].get<std::string>());
    ASSERT_NE(view, nullptr) << tensor["name"];
    EXPECT_EQ(DTypeName(view->dtype), tensor["dtype"].get<std::string>());
    EXPECT_EQ(nlohmann::json(view->shape), tensor["shape"]);
    EXPECT_EQ(view->bytes.size(), tensor["nbytes"]);
    EXPECT_EQ(HashToHex(view->hash), tensor["hash"].get<std::string>());
    EXPECT_EQ(view->file_index, tensor["shard"]);
    if (view->hash != 0) {
      EXPECT_EQ(HashBytes(view->bytes), view->hash) << view->name;
    }
    if (view->file_index == 0) {
      EXPECT_EQ(view->file_offset - contents.envelope.data.offset, tensor["off"]);
    }
  }

  ASSERT_EQ(contents.masks.masks.size(), expected_["masks"].size());
  for (size_t i = 0; i < contents.masks.masks.size(); ++i) {
    ExpectMask(contents.masks.masks[i], expected_["masks"][i]);
  }
  ASSERT_EQ(contents.sparse_index.size(), expected_["sparse_index"].size());
  for (size_t i = 0; i < contents.sparse_index.size(); ++i) {
    const cmf::SparseEntry& entry = contents.sparse_index[i];
    const nlohmann::json& expected = expected_["sparse_index"][i];
    EXPECT_EQ(entry.task_id, expected["task_id"]);
    EXPECT_EQ(entry.layer, expected["layer_idx"]);
    EXPECT_EQ(nlohmann::json(entry.ffn_groups), expected["active_ffn_groups"]);
    EXPECT_EQ(nlohmann::json(entry.heads), expected["active_heads"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, CmfGoodFile, testing::ValuesIn(GoodFiles()), [](const auto& item) {
  std::string name = item.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(CmfFamilies, AllOpen) {
  for (const auto& entry : fs::directory_iterator(golden::Path("cmf/families"))) {
    if (entry.path().extension() == ".cmf") {
      EXPECT_NO_THROW(CmfFile::Open(entry.path().string()));
    }
  }
}

// Cases whose fault the container shows when it is opened.
TEST(CmfBadFiles, RefusedWithTheirClass) {
  const nlohmann::json cases = golden::ReadJson(golden::Path("cmf/bad/expected.json"))["cases"];
  int checked = 0;
  for (const nlohmann::json& bad : cases) {
    const std::string name = bad["name"];
    if (bad["action"] == "verify") continue;
    if (bad["action"] != "open" && !name.starts_with("shard_")) continue;
    const std::string path = golden::Path("cmf/bad/" + bad["open"].get<std::string>()).string();
    const auto code = Thrown([&] { OpenCheckpoint(path); });
    ++checked;
    if (bad["expect"] == "ok") {
      EXPECT_EQ(code, std::nullopt) << name;
    }
    if (bad["expect"] == "fail") {
      std::string expected = bad["spec_error"];
      if (expected == "FileNotFound") expected = "NotFound";
      ASSERT_TRUE(code) << name;
      EXPECT_EQ(ErrorCodeName(*code), expected) << name;
    }
  }
  EXPECT_GT(checked, 60);
}

class CmfPatchTest : public ScratchTest {
 protected:
  CmfPatchTest() : bytes_(golden::ReadBytes(golden::Path("cmf/bad/ok_control.cmf"))) {
    // Without hashes, so that the fault itself is what shows.
    std::fill_n(bytes_.begin() + 0x70, 16, uint8_t{0});
    envelope_ = cmf::ParseEnvelope(bytes_, "control");
  }
  template <typename T>
  void Patch(uint64_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  uint64_t Record(uint64_t index) const {
    return envelope_.directory.offset + cmf::kDirectoryHeaderSize + index * cmf::kRecordSize;
  }
  std::optional<ErrorCode> Fault() const {
    return Thrown([&] { ParseCmf(bytes_, "patched"); });
  }
  std::vector<uint8_t> bytes_;
  cmf::Envelope envelope_;
};

TEST_F(CmfPatchTest, TheControlIsGood) { EXPECT_EQ(Fault(), std::nullopt); }

TEST_F(CmfPatchTest, NonZeroShapeTail) {
  Patch(Record(0) + 8 + 5 * 4, uint32_t{1});
  EXPECT_EQ(Fault(), ErrorCode::kParse);
}

TEST_F(CmfPatchTest, DimensionsThatWrap) {
  for (uint64_t i = 0; i < 6; ++i) Patch(Record(0) + 8 + i * 4, ~uint32_t{0});
  Patch(Record(0) + 7, uint8_t{6});
  EXPECT_EQ(Fault(), ErrorCode::kBounds);
}

TEST_F(CmfPatchTest, EmptyName) {
  Patch(Record(0) + 4, uint16_t{0});
  EXPECT_EQ(Fault(), ErrorCode::kParse);
}

// A record is 56 bytes, and its name may be 65535 of a pool that all of them share.
TEST_F(CmfPatchTest, NamesThatShareBytes) {
  constexpr uint64_t kRecords = 100;
  const uint64_t pool = cmf::kDirectoryHeaderSize + kRecords * cmf::kRecordSize;
  std::vector<uint8_t> file(cmf::kEnvelopeSize + pool + kRecords + 60000, 'n');
  uint8_t* directory = file.data() + cmf::kEnvelopeSize;
  std::memcpy(directory, &kRecords, sizeof(kRecords));
  std::memcpy(directory + 8, &pool, sizeof(pool));
  const auto fault = [&](uint16_t length) {
    for (uint32_t i = 0; i < kRecords; ++i) {
      uint8_t* record = directory + cmf::kDirectoryHeaderSize + i * cmf::kRecordSize;
      std::fill_n(record, cmf::kRecordSize, uint8_t{0});
      const auto own = static_cast<uint16_t>(length + i);  // no two names are the same
      std::memcpy(record + 4, &own, sizeof(own));
      record[7] = 1;  // one dimension, of nothing
    }
    cmf::Envelope envelope;
    envelope.directory = {cmf::kEnvelopeSize, file.size() - cmf::kEnvelopeSize};
    std::string message;
    Thrown([&] { cmf::ParseDirectory(file, envelope, "names"); }, &message);
    return message;
  };
  EXPECT_EQ(fault(1), "");
  EXPECT_NE(fault(60000).find("longer than the whole directory"), std::string::npos);
}

TEST_F(CmfPatchTest, TensorsThatShareBytes) {
  const auto records = cmf::ParseDirectory(bytes_, envelope_, "control");
  size_t larger = records[0].nbytes >= records[1].nbytes ? 0 : 1;
  Patch(Record(1 - larger) + 32, records[larger].offset);
  EXPECT_EQ(Fault(), ErrorCode::kBounds);
}

TEST_F(CmfPatchTest, SectionsThatShareBytes) {
  Patch(0x50, envelope_.header.offset);  // the tokenizer on the header
  EXPECT_EQ(Fault(), ErrorCode::kBounds);
}

TEST_F(CmfPatchTest, EverySizeOneByteShort) {
  const auto records = cmf::ParseDirectory(bytes_, envelope_, "control");
  const std::vector<uint8_t> good = bytes_;
  for (size_t i = 0; i < records.size(); ++i) {
    bytes_ = good;
    Patch(Record(i) + 40, records[i].nbytes - 1);
    EXPECT_EQ(Fault(), ErrorCode::kBounds) << records[i].name;
  }
}

// An error that says which id, and of a reserved one that it is.
TEST_F(CmfPatchTest, DtypesThatThereAreNone) {
  const std::vector<uint8_t> good = bytes_;
  for (const int id : {5, 7, 16, 17, 200, 240, 255}) {
    bytes_ = good;
    bytes_[Record(0) + 6] = static_cast<uint8_t>(id);
    std::string message;
    EXPECT_EQ(Thrown([&] { cmf::ParseDirectory(bytes_, envelope_, "control"); }, &message),
              ErrorCode::kParse);
    const std::string wanted =
        (id < 16 ? "the reserved dtype id " : "the unknown dtype id ") + std::to_string(id) + " ";
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  }
}

TEST_F(CmfPatchTest, TrailingBytesAreAllowed) {
  bytes_.resize(bytes_.size() + 1000, 0xEE);
  EXPECT_EQ(Fault(), std::nullopt);
}

TEST_F(CmfPatchTest, EveryTruncationIsRefused) {
  const std::vector<uint8_t> good = bytes_;
  for (size_t size = 0; size < good.size(); size += 1 + size / 64) {
    bytes_.assign(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(Fault(), std::nullopt) << size;
  }
}

// A header may claim any number of passes: too many are refused before anything is sized by them,
// also where the rows of a mask have no bytes that would tell.
TEST_F(CmfPatchTest, ClaimedPassesAllocateNothing) {
  const cmf::Header header = cmf::ParseHeader(bytes_, envelope_, "control");
  const auto fault = [&](uint64_t loops, uint64_t neurons) {
    Json json = header.json;
    json["arch"]["num_loops"] = loops;
    json["arch"]["intermediate_size"] = neurons;
    const std::string text = json.dump();
    cmf::Envelope envelope;
    envelope.header = {0, text.size()};
    return Thrown([&] { cmf::ParseHeader(BytesOf(text), envelope, "claimed"); });
  };
  EXPECT_EQ(fault(cmf::kMaxLoops, header.intermediate_size), std::nullopt);
  for (const uint64_t loops : {uint64_t{0}, uint64_t{cmf::kMaxLoops + 1}, uint64_t{1} << 31}) {
    EXPECT_EQ(fault(loops, header.intermediate_size), ErrorCode::kParse) << loops;
    EXPECT_EQ(fault(loops, 0), ErrorCode::kParse) << loops;
  }
}

class CmfShardTest : public ScratchTest {
 protected:
  void Copy(const std::string& from, const std::string& to) {
    fs::copy_file(golden::Path("cmf/files/" + from), folder_ / to);
  }
};

TEST_F(CmfShardTest, AnyNameOpensTheSet) {
  for (const char* shard : {"00001", "00002", "00003"}) {
    const auto file = OpenCheckpoint(
        golden::Path("cmf/files/sharded-" + std::string(shard) + "-of-00003.cmf").string());
    EXPECT_EQ(file->files().size(), 3u);
    EXPECT_FALSE(file->tokenizer_json().empty());
    EXPECT_FALSE(file->chat_bundle().is_null());
  }
}

TEST_F(CmfShardTest, SymbolicLinksAndMissingShards) {
  for (int i = 1; i <= 3; ++i) {
    const std::string name = "sharded-0000" + std::to_string(i) + "-of-00003.cmf";
    fs::create_symlink(golden::Path("cmf/files/" + name),
                       folder_ / ("other-0000" + std::to_string(i) + "-of-00003.cmf"));
  }
  EXPECT_EQ(OpenCheckpoint(At("other-00002-of-00003.cmf"))->files().size(), 3u);
  fs::remove(folder_ / "other-00003-of-00003.cmf");
  EXPECT_EQ(Thrown([&] { OpenCheckpoint(At("other-00001-of-00003.cmf")); }), ErrorCode::kNotFound);
  EXPECT_NO_THROW(CmfFile::OpenAlone(At("other-00002-of-00003.cmf")));
}

}  // namespace
}  // namespace moewe::formats
