#include "platform/paths.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "moewe/error.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class PathsTest : public testing::Test {
 protected:
  PathsTest() {
    std::string name = (fs::temp_directory_path() / "moewe_paths.XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream(At("file")) << "12345";
    fs::create_symlink("file", At("link"));
    fs::create_symlink("loop", At("loop"));
  }
  ~PathsTest() override { fs::remove_all(folder_); }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(PathsTest, TellsWhatIsThere) {
  EXPECT_TRUE(PathExists(At("file")));
  EXPECT_TRUE(IsRegularFile(At("link")));
  EXPECT_FALSE(IsFolder(At("file")));
  EXPECT_TRUE(IsFolder(folder_.string()));
  EXPECT_FALSE(IsRegularFile(folder_.string()));
  EXPECT_FALSE(PathExists(At("nothing")));
  EXPECT_FALSE(PathExists(At("file/below")));
  EXPECT_FALSE(IsFolder(""));
  EXPECT_EQ(FileSize(At("link")), 5u);
}

// What the system can't tell is no "no": an error that names the path.
TEST_F(PathsTest, FailuresNameThePath) {
  const auto fails = [](auto question, const std::string& path, ErrorCode code) {
    try {
      question(path);
      ADD_FAILURE() << "no error for " << path.substr(0, 80);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.where().file, path);
    }
  };
  for (const std::string& path : {At("loop"), At(std::string(5000, 'x'))}) {
    fails(PathExists, path, ErrorCode::kIo);
    fails(IsFolder, path, ErrorCode::kIo);
    fails(IsRegularFile, path, ErrorCode::kIo);
    fails(FileSize, path, ErrorCode::kIo);
  }
  fails(FileSize, At("nothing"), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace moewe
