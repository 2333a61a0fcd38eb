// Counts of experts beside a model: written, read, refused, merged, and what a killed writer
// leaves.
#include "experts/expert_frequencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>

#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::experts {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using Counts = std::vector<uint64_t>;

constexpr uint64_t kKey = 0x1234;

class FrequenciesTest : public testing::Test {
 protected:
  FrequenciesTest()
      : folder_(fs::temp_directory_path() / ("moewe_freq." + std::to_string(getpid()))),
        path_((folder_ / "m.cmf.freq").string()) {
    fs::create_directories(folder_);
  }
  ~FrequenciesTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  Counts Read(size_t experts) const { return ReadFrequencies(path_, kKey, experts); }
  std::optional<ErrorCode> Refusal(size_t experts = 3, uint64_t key = kKey) const {
    try {
      ReadFrequencies(path_, key, experts);
      return std::nullopt;
    } catch (const Error& error) {
      EXPECT_EQ(error.where().file, path_);
      return error.code();
    }
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(FrequenciesTest, WhatIsSavedIsRead) {
  EXPECT_EQ(FrequencyPath("a/m.cmf"), "a/m.cmf.freq");
  EXPECT_EQ(FrequencyPath("a/m/"), "a/m.freq");
  EXPECT_EQ(Refusal(), ErrorCode::kNotFound);
  ASSERT_TRUE(SaveFrequencies(path_, kKey, Counts{5, 0, UINT64_MAX}));
  EXPECT_THAT(Read(3), ElementsAre(5, 0, UINT64_MAX));
  ASSERT_TRUE(SaveFrequencies(path_, kKey, Counts{1, 2, 3}));
  EXPECT_THAT(Read(3), ElementsAre(1, 2, 3));
}

TEST_F(FrequenciesTest, KeysTellModelsApart) {
  const std::vector<ModelFile> files{{"a", 10}, {"b", 20}};
  const std::vector<uint32_t> experts{4, 8};
  const uint64_t key = FrequencyKey(files, experts);
  EXPECT_EQ(FrequencyKey(files, experts), key);
  EXPECT_NE(FrequencyKey(std::vector<ModelFile>{{"a", 10}, {"b", 21}}, experts), key);
  EXPECT_NE(FrequencyKey(std::vector<ModelFile>{{"a", 10}, {"c", 20}}, experts), key);
  EXPECT_NE(FrequencyKey(files, std::vector<uint32_t>{8, 4}), key);
  SaveFrequencies(path_, key, Counts{1, 2, 3});
  EXPECT_EQ(Refusal(3, key + 1), ErrorCode::kParse);
}

TEST_F(FrequenciesTest, DamagedFilesAreRefused) {
  SaveFrequencies(path_, kKey, Counts{1, 2, 3});
  const std::vector<uint8_t> whole = ReadWholeFile(path_, 1000);
  const auto write = [&](const std::vector<uint8_t>& bytes) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<uint8_t> bytes = whole;
    bytes[i] ^= 0x10;
    write(bytes);
    EXPECT_TRUE(Refusal()) << i;
    write({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(i)});
    EXPECT_TRUE(Refusal()) << i;
  }
  std::vector<uint8_t> longer = whole;
  longer.push_back(0);
  write(longer);
  EXPECT_EQ(Refusal(), ErrorCode::kBounds);
  write(whole);
  EXPECT_FALSE(Refusal());
  EXPECT_TRUE(Refusal(2));
  EXPECT_TRUE(Refusal(4));
}

TEST_F(FrequenciesTest, WhatIsNoFileIsLeftAlone) {
  const std::string other = (folder_ / "other").string();
  std::ofstream(other) << "of somebody else";
  fs::create_symlink(other, path_);
  EXPECT_EQ(Refusal(), ErrorCode::kIo);
  EXPECT_THROW(SaveFrequencies(path_, kKey, Counts{1, 2, 3}), Error);
  EXPECT_EQ(fs::file_size(other), 16u);
  EXPECT_TRUE(fs::is_symlink(path_));
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);  // nobody will ever write into it, or read
  EXPECT_EQ(Refusal(), ErrorCode::kIo);
  EXPECT_THROW(SaveFrequencies(path_, kKey, Counts{1, 2, 3}), Error);
}

TEST_F(FrequenciesTest, ThePastMakesRoom) {
  EXPECT_THAT(MergeFrequencies(Counts{1, 2}, Counts{3, 4}), ElementsAre(4, 6));
  // Room for 512: the past is halved until it fits beside the present.
  EXPECT_THAT(MergeFrequencies(Counts{400, 8}, Counts{10, 100}), ElementsAre(210, 104));
  EXPECT_THAT(MergeFrequencies(Counts{UINT64_MAX, UINT64_MAX}, Counts{0, 4}),
              testing::Each(testing::Le(512u)));
  // So is a present that has no room itself; what little is left goes to the past.
  EXPECT_THAT(MergeFrequencies(Counts{500, 0}, Counts{0, 2000}), ElementsAre(7, 500));
  // Used for a while, whatever the past was: what is used now counts most.
  Counts counts{100000, 0};
  for (int i = 0; i < 4; ++i) counts = MergeFrequencies(counts, Counts{0, 200});
  EXPECT_GT(counts[1], counts[0]);
}

TEST_F(FrequenciesTest, KilledOrFailingAtAnyOperation) {
  const Counts past(3, 7);
  const Counts present(3, 9);
  int operations = 0;
  SetFileFaultForTest([&](FileOperation, size_t*) {
    ++operations;
    return 0;
  });
  SaveFrequencies(path_, kKey, past);
  SetFileFaultForTest({});
  ASSERT_GT(operations, 2);
  for (int last = 0; last < operations; ++last) {
    SCOPED_TRACE(last);
    SaveFrequencies(path_, kKey, past);
    const pid_t child = fork();
    if (child == 0) {
      int count = 0;
      SetFileFaultForTest([&](FileOperation, size_t*) {
        if (count++ == last) raise(SIGKILL);
        return 0;
      });
      SaveFrequencies(path_, kKey, present);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    const Counts found = Read(3);
    EXPECT_TRUE(found == past || found == present);

    int count = 0;
    SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == last ? EIO : 0; });
    try {
      SaveFrequencies(path_, kKey, present);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
    SetFileFaultForTest({});
    const Counts left = Read(3);
    EXPECT_TRUE(left == past || left == present);
  }
}

TEST_F(FrequenciesTest, AFolderThatMayNotBeWritten) {
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec |
                               fs::perms::others_read);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);  // root may write everywhere
    try {
      _exit(SaveFrequencies(path_, kKey, Counts{1}) ? 1 : 0);
    } catch (...) {
      _exit(3);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  fs::permissions(folder_, fs::perms::owner_all);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "cannot give up root's rights";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_THROW(SaveFrequencies((folder_ / "none" / "m.freq").string(), kKey, Counts{1}), Error);
}

}  // namespace
}  // namespace moewe::experts
