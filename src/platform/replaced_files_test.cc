// Files that are replaced together, whatever ends it: all old, all new, or none to be read.
#include "platform/replaced_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe {
namespace {

namespace fs = std::filesystem;

class ReplacedFilesTest : public testing::Test {
 protected:
  using State = std::map<std::string, std::string>;

  ReplacedFilesTest()
      : folder_(fs::temp_directory_path() / ("moewe_replaced_test." + std::to_string(getpid()))) {}
  ~ReplacedFilesTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  std::string At(const std::string& name) const { return (folder_ / name).string(); }

  // "gone" has no successor, "fresh" no predecessor.
  void Prepare() const {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const char* name : {"first", "second", "gone"}) std::ofstream(At(name)) << "old " << name;
    for (const char* name : {"first", "second", "fresh"}) {
      std::ofstream(At(std::string(name) + ".new")) << "new " << name;
    }
  }
  std::unique_ptr<ReplacedFiles> Open() const {
    return std::make_unique<ReplacedFiles>(
        std::vector<std::string>{At("first"), At("second"), At("fresh"), At("gone")});
  }
  void Replace() const {
    const auto old = Open();
    old->SetAside();
    for (const char* name : {"second", "fresh", "first"}) {
      RenameAndSync(At(std::string(name) + ".new"), At(name));
    }
    old->Forget();
  }

  // Everything but what was to become something.
  State Found() const {
    State state;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      std::ifstream in(entry.path());
      if (!name.ends_with(".new")) state[name] = {std::istreambuf_iterator<char>(in), {}};
    }
    return state;
  }

  const State old_ = {{"first", "old first"}, {"second", "old second"}, {"gone", "old gone"}};
  const State new_ = {{"first", "new first"}, {"second", "new second"}, {"fresh", "new fresh"}};
  fs::path folder_;
};

TEST_F(ReplacedFilesTest, AllNew) {
  Prepare();
  Replace();
  EXPECT_EQ(Found(), new_);
}

TEST_F(ReplacedFilesTest, AFailureBringsTheOldOnesBack) {
  int failures = 0;
  for (int failing = 0;; ++failing) {
    ASSERT_LT(failing, 100);
    Prepare();
    int count = 0;
    SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == failing ? EIO : 0; });
    bool failed = false;
    try {
      Replace();
    } catch (const Error&) {
      failed = true;
    }
    SetFileFaultForTest({});
    if (!failed) break;
    ++failures;
    EXPECT_EQ(Found(), old_) << "operation " << failing;
  }
  EXPECT_EQ(failures, 12);  // 6 renames, each synced
}

TEST_F(ReplacedFilesTest, AKilledProcessIsPutRight) {
  int unreadable = 0;
  int killed = 0;
  for (int last = 0;; ++last) {
    ASSERT_LT(last, 100);
    Prepare();
    const pid_t child = fork();
    if (child == 0) {
      int count = 0;
      SetFileFaultForTest([&](FileOperation, size_t*) {
        if (count++ > last) raise(SIGKILL);
        return 0;
      });
      Replace();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    State found = Found();
    if (!found.contains("first")) {
      ++unreadable;
    } else {
      std::erase_if(found, [](const auto& file) { return file.first.ends_with("-replaced"); });
      EXPECT_TRUE(found == old_ || found == new_) << "operation " << last;
    }
    const bool complete = found.contains("first") && found.at("first") == "new first";
    Open();  // as the next run does
    EXPECT_EQ(Found(), complete ? new_ : old_) << "operation " << last;
    if (!WIFSIGNALED(status)) break;
    ++killed;
  }
  EXPECT_GE(killed, 10);
  EXPECT_GE(unreadable, 8);
}

TEST_F(ReplacedFilesTest, LinksStayAndWhatWasNeverSetAsideIsNotTouched) {
  Prepare();
  fs::rename(At("second"), At("elsewhere"));
  fs::create_symlink("elsewhere", At("second"));
  {
    const auto old = Open();
    old->SetAside();
    EXPECT_FALSE(fs::exists(At("first")));
    EXPECT_FALSE(fs::exists(At("elsewhere")));
    std::ofstream(At("fresh")) << "half";
  }
  EXPECT_TRUE(fs::is_symlink(At("second")));
  EXPECT_EQ(Found(), (State{{"first", "old first"},
                            {"second", "old second"},
                            {"elsewhere", "old second"},
                            {"gone", "old gone"}}));
  Open();
  EXPECT_TRUE(fs::exists(At("first")));
}

}  // namespace
}  // namespace moewe
