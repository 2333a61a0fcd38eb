// Vaults cut and changed at every place: refused with an error, or parsed. The odd vaults with a
// known verdict are tested through the program (tests/smoe_test.cc).
#include "formats/smoe/vault_tables.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "formats/smoe/smoe_vault.h"
#include "formats/smoe/vault_writer.h"
#include "formats/test_util.h"
#include "golden.h"

namespace moewe::formats::smoe {
namespace {

std::vector<uint8_t> Base() { return golden::ReadBytes(golden::Path("smoe/bad/base.smoe")); }

TEST(VaultTablesTest, FindsExpertsByLayerAndNumber) {
  const std::vector<uint8_t> file = Base();
  const VaultTables tables = ParseVaultTables(file, "f");
  EXPECT_EQ(tables.experts.size(), 2u);
  EXPECT_EQ(tables.Find(0, 1), 1u);
  EXPECT_FALSE(tables.Find(0, 2));
  EXPECT_FALSE(tables.Find(1, 0));
  EXPECT_TRUE(tables.warnings.empty());
  EXPECT_EQ(tables.layers.at(0), 2u);
}

TEST(VaultTablesTest, EveryCutIsAnError) {
  const std::vector<uint8_t> file = Base();
  for (size_t size = 0; size < file.size(); size += size < 700 ? 1 : 1009) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THROW(ParseVaultTables(cut, "f"), Error) << size;
  }
}

// With and without a sink for faults the same files are good.
TEST(VaultTablesTest, AnyChangedByteIsRefusedOrParsed) {
  std::vector<uint8_t> file = Base();
  int refused = 0;
  for (size_t at = 0; at < 600; ++at) {
    for (const uint8_t value : std::initializer_list<uint8_t>{0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      const uint8_t before = file[at];
      file[at] = value;
      const bool good = !Thrown([&] { ParseVaultTables(file, "f"); });
      size_t problems = 0;
      const bool collected =
          !Thrown([&] { ParseVaultTables(file, "f", [&](const Error&) { ++problems; }); });
      EXPECT_EQ(good, collected && problems == 0) << at;
      refused += good ? 0 : 1;
      file[at] = before;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(VaultTablesTest, SeveralFaultsAreAllReported) {
  std::vector<uint8_t> file = Base();
  file[64 + 32] = 32;                  // group_size of expert 0
  file[64 + 2 * 48 + 3 * 44 + 1] = 3;  // ndim of expert 1's gate
  std::vector<std::string> fields;
  ParseVaultTables(file, "f", [&](const Error& error) { fields.push_back(error.where().field); });
  EXPECT_EQ(fields, (std::vector<std::string>{"table[0].group_size", "descriptors[3].ndim"}));
}

// Experts of different widths, and a table that pushes the arch block over a page.
TEST(VaultPlanTest, WhatIsPlannedParses) {
  ArchBlock arch;
  arch.rope_theta = 1e4f;
  arch.num_heads = arch.num_kv_heads = 1;
  arch.head_dim = 32;
  arch.moe_top_k = 2;
  arch.model_type = "a_name_that_is_longer_than_the_field";
  std::vector<PlannedExpert> experts;
  for (uint32_t layer = 1; layer < 4; ++layer) {
    for (uint32_t e = 0; e < 30; ++e) experts.push_back({layer, e, 3 + e});
  }
  for (const uint32_t bits : {2u, 4u}) {
    const VaultPlan plan = PlanVault(bits, 20, 100, experts, arch);
    EXPECT_EQ(plan.header.reserved_ext, 16320u);
    EXPECT_EQ(plan.header.data_offset, 32768u);
    std::vector<uint8_t> file = SerializeTables(plan.header, plan.experts, plan.arch);
    const ExpertEntry& last = plan.experts.back().entry;
    file.resize(last.byte_offset + last.padded_size);
    const VaultTables tables = ParseVaultTables(file, "f");
    EXPECT_EQ(tables.experts.size(), 90u);
    EXPECT_TRUE(tables.warnings.empty());
    EXPECT_EQ(tables.arch->model_type, "a_name_that_is_longer_th");
    EXPECT_EQ(tables.experts[31].tensors[2].cols, 4u);
    for (const Expert& expert : tables.experts) {
      for (const TensorDescriptor& tensor : expert.tensors) EXPECT_TRUE(IsContiguous(tensor));
    }
  }
}

// What lies in the file as the codec reads it can be read from there; the rest says that it can't.
TEST(SmoeVaultTest, ViewsSayWhereTheirBytesLie) {
  const std::string scout = golden::Path("smoe/bad/base.scout.safetensors").string();
  const auto plain = SmoeVault::Open(golden::Path("smoe/bad/base.smoe").string(), scout);
  // The scales of expert 0's up_proj move behind everything else of its blob.
  std::vector<uint8_t> file = Base();
  Expert expert = plain->tables().experts[0];
  TensorDescriptor& up = expert.tensors[1];
  const uint64_t blob = expert.entry.byte_offset;
  const uint64_t from = blob + up.scales_offset;
  up.scales_offset = expert.entry.raw_size;
  expert.entry.raw_size += up.scales_size;
  std::copy_n(file.begin() + static_cast<ptrdiff_t>(from), up.scales_size,
              file.begin() + static_cast<ptrdiff_t>(blob + up.scales_offset));
  std::memcpy(&file[64 + 16], &expert.entry.raw_size, sizeof(uint64_t));
  std::memcpy(&file[64 + 2 * 48 + 44 + 28], &up.scales_offset, sizeof(uint64_t));
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("moewe_vault_views." + std::to_string(getpid()) + ".smoe");
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const auto moved = SmoeVault::Open(path.string(), scout);
  std::filesystem::remove(path);
  for (const TensorView& view : moved->tensors()) {
    if (view.name.find(".experts.") == view.name.npos) continue;
    EXPECT_EQ(view.file_index, 0u);
    EXPECT_TRUE(std::ranges::equal(view.bytes, plain->Find(view.name)->bytes)) << view.name;
    if (view.name.find("experts.0.up_proj") != view.name.npos) {
      EXPECT_EQ(view.file_offset, kNotInFile);
    } else {
      const Bytes stored = moved->file_bytes().subspan(view.file_offset, view.bytes.size());
      EXPECT_EQ(stored.data(), view.bytes.data()) << view.name;
    }
  }
}

TEST(CompanionsTest, LieBesideTheVault) {
  EXPECT_EQ(CompanionsOf("a/m.smoe").scout, "a/m.scout.safetensors");
  EXPECT_EQ(CompanionsOf("m").chat, "m.chat.json");
}

}  // namespace
}  // namespace moewe::formats::smoe
