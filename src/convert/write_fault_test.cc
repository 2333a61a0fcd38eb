// What every command that writes a model leaves when it dies or an operation fails: the old file or
// the complete new one, and nothing that could be taken for either. (fault_test.cc: resuming.)
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "convert/mask_edit.h"
#include "convert/skill_edit.h"
#include "convert/skill_file.h"
#include "convert/skill_test_files.h"
#include "formats/signature.h"
#include "formats/verify.h"
#include "moewe/error.h"
#include "platform/file_io.h"

namespace moewe::convert {
namespace {

namespace fs = std::filesystem;
using formats::CmfFile;

constexpr auto kNoProgress = [](uint64_t, uint64_t) {};

// One command on files of a folder of its own.
struct Command {
  const char* name;
  std::vector<const char*> outputs;  // files that it makes or changes
  // Puts its inputs, and older outputs, into the folder.
  void (*prepare)(const fs::path& folder);
  // Without threads of a pool: it also runs in forked processes.
  void (*run)(const fs::path& folder);
};

void PutGolden(const std::string& golden, const fs::path& path) {
  fs::copy_file(GoldenFile(golden), path, fs::copy_options::overwrite_existing);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

void ConvertTo(const std::string& source, const fs::path& dst, std::optional<DType> quant = {},
               std::optional<uint64_t> shard_max = {}) {
  ThreadPool pool(1);
  ConvertOptions options;
  options.quant = quant;
  options.shard_max = shard_max;
  ConvertToCmf(*formats::OpenCheckpoint(source), dst.string(), options, pool);
}

std::unique_ptr<formats::CmfAppender> Append(const fs::path& path) {
  return formats::CmfAppender::Open(path.string(), [](const std::string&) {});
}

void AddCodeSkill(const fs::path& folder) {
  std::vector<model::TokenId> text;
  for (int i = 0; i < 60; ++i) text.push_back((i * 37 + i * i) % 300);
  SkillAddOptions options;
  options.id = "code";
  options.texts = {text};
  options.subspace = {.phi_layer = 1, .rank = 2, .window = 16};
  ThreadPool pool(1);
  const auto donor = formats::OpenCheckpoint((folder / "donor.cmf").string());
  AddSkill(Append(folder / "m.cmf").get(), *donor, options, pool);
}

void AddMaskTo(const fs::path& source, const fs::path& dst) {
  const auto file = CmfFile::Open(source.string());
  MaskDescription mask(file->contents().header);
  mask.name = "new";
  AddMask(*file, mask, false, dst.string());
}

const Command kCommands[] = {
    {"convert",
     {"out.cmf"},
     [](const fs::path& folder) { PutGolden("dense_qwen3_q4", folder / "out.cmf"); },
     [](const fs::path& folder) {
       ConvertTo(GoldenFile("mtp_tiny"), folder / "out.cmf", DType::kQ8Row);
     }},
    // With masks, a sparse index and a tokenizer, over an older file.
    {"requant",
     {"out.cmf"},
     [](const fs::path& folder) { PutGolden("mtp_tiny", folder / "out.cmf"); },
     [](const fs::path& folder) {
       ConvertTo(GoldenFile("masks_qwen3_q8row"), folder / "out.cmf", DType::kQ4tp);
     }},
    {"compact",
     {"out.cmf"},
     [](const fs::path&) {},
     [](const fs::path& folder) { ConvertTo(GoldenFile("skill_appended"), folder / "out.cmf"); }},
    {"shard",
     {"out-00001-of-00003.cmf", "out-00002-of-00003.cmf", "out-00003-of-00003.cmf"},
     [](const fs::path&) {},
     [](const fs::path& folder) {
       ConvertTo(GoldenFile("mtp_tiny"), folder / "out.cmf", {}, 24000);
     }},
    {"mask_add",
     {"m.cmf"},
     [](const fs::path& folder) { PutGolden("masks_llama_q8row", folder / "m.cmf"); },
     [](const fs::path& folder) { AddMaskTo(folder / "m.cmf", folder / "m.cmf"); }},
    {"sign",
     {"m.cmf.sig"},
     [](const fs::path& folder) {
       PutGolden("mtp_tiny", folder / "m.cmf");
       std::ofstream(folder / "key") << std::string(64, 'a');
       std::ofstream(folder / "m.cmf.sig") << "an older one";
     },
     [](const fs::path& folder) {
       formats::SigningKey::Read((folder / "key").string())
           .Sign((folder / "m.cmf").string(), kNoProgress);
     }},
    {"skill_add",
     {"m.cmf"},
     [](const fs::path& folder) {
       PutGolden("dense_qwen3_q8", folder / "m.cmf");
       if (!fs::exists(folder / "donor.cmf")) WriteDonor((folder / "donor.cmf").string());
     },
     AddCodeSkill},
    {"skill_remove",
     {"m.cmf"},
     [](const fs::path& folder) { PutGolden("skills_2", folder / "m.cmf"); },
     [](const fs::path& folder) { RemoveSkill(Append(folder / "m.cmf").get(), "code"); }},
    {"skill_export",
     {"s.cmf"},
     [](const fs::path& folder) { PutGolden("dense_qwen3_q4", folder / "s.cmf"); },
     [](const fs::path& folder) {
       ExportSkill(*CmfFile::Open(GoldenFile("specialist")),
                   *CmfFile::Open(GoldenFile("skill_base")), (folder / "s.cmf").string(),
                   {.id = "s"});
     }},
    {"skill_apply",
     {"out.cmf"},
     [](const fs::path&) {},
     [](const fs::path& folder) {
       ApplySkill(*CmfFile::Open(GoldenFile("skill_base")), *CmfFile::Open(GoldenFile("gfx.skill")),
                  (folder / "out.cmf").string(), false, {});
     }},
};

class WriteFaultTest : public testing::TestWithParam<Command> {
 protected:
  WriteFaultTest()
      : folder_(fs::temp_directory_path() / ("moewe_write_fault." + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    Prepare();
    old_ = State();
    std::atomic<int> count{0};
    SetFileFaultForTest([&](FileOperation, size_t*) {
      ++count;
      return 0;
    });
    GetParam().run(folder_);
    SetFileFaultForTest({});
    operations_ = count;
    new_ = State();
  }
  ~WriteFaultTest() override {
    SetFileFaultForTest({});
    fs::remove_all(folder_);
  }

  // Inputs and old outputs; nothing else, but for the donor that takes long to make.
  void Prepare() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    for (const fs::path& path : found) {
      if (path.filename() != "donor.cmf") fs::remove(path);
    }
    GetParam().prepare(folder_);
  }

  // What the outputs say, each by itself. Of a file that grew, what its envelope points at.
  std::map<std::string, std::string> State() const {
    std::map<std::string, std::string> state;
    for (const std::string name : GetParam().outputs) {
      const fs::path path = folder_ / name;
      if (!fs::exists(path)) {
        state[name] = "absent";
        continue;
      }
      const std::vector<uint8_t> bytes = golden::ReadBytes(path);
      std::string& content = state[name];
      if (!name.ends_with(".cmf")) {
        content.assign(bytes.begin(), bytes.end());
        continue;
      }
      const auto file = CmfFile::OpenAlone(path.string());
      content = file->config().dump();
      for (const formats::TensorView& tensor : file->tensors()) {
        content += "|" + tensor.name + " " + std::to_string(tensor.hash);
      }
    }
    return state;
  }

  // Every output is the old or the new one and sound.
  void ExpectWhole() const {
    ThreadPool pool(1);
    for (const auto& [name, content] : State()) {
      EXPECT_TRUE(content == old_.at(name) || content == new_.at(name)) << name;
      if (content == "absent" || !name.ends_with(".cmf")) continue;
      const auto problems =
          formats::Verify((folder_ / name).string(), {}, &pool, kNoProgress).problems;
      for (const auto& problem : problems) ADD_FAILURE() << name << ": " << problem.message;
    }
  }

  // Partial files are known by the journal beside them, and nothing else lies around.
  void ExpectNoRemains(bool after_kill) const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".partial")) {
        EXPECT_TRUE(fs::file_size(entry.path()) == 0 ||
                    fs::exists(entry.path().string() + ".journal"))
            << name;
      }
      // A file that is complete has a name of its own only between two system calls.
      EXPECT_TRUE(after_kill || name.find(".tmp.") == std::string::npos) << name;
    }
  }

  fs::path folder_;
  std::map<std::string, std::string> old_;
  std::map<std::string, std::string> new_;
  int operations_ = 0;
};

// What lies in one sector is written at once or not at all.
size_t HalfOf(size_t bytes) { return bytes > 512 ? bytes / 2 : bytes; }

TEST_P(WriteFaultTest, KilledAtAnyOperation) {
  ASSERT_GT(operations_, 2);
  ASSERT_NE(old_, new_);
  for (int last = 0; last < operations_; ++last) {
    SCOPED_TRACE("operation " + std::to_string(last));
    Prepare();
    const pid_t child = fork();
    if (child == 0) {
      std::atomic<int> count{0};
      SetFileFaultForTest([&](FileOperation, size_t* bytes) {
        const int now = count++;
        if (now == last) *bytes = HalfOf(*bytes);
        if (now > last) raise(SIGKILL);
        return 0;
      });
      GetParam().run(folder_);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ExpectWhole();
    ExpectNoRemains(/*after_kill=*/true);
    // And again, without a fault.
    if (last % 3 != 0 || State() == new_) continue;
    GetParam().run(folder_);
    EXPECT_EQ(State(), new_);
  }
}

TEST_P(WriteFaultTest, AnOperationFails) {
  for (int failing = 0; failing < operations_; ++failing) {
    const int number = failing % 2 == 0 ? EIO : ENOSPC;
    SCOPED_TRACE("operation " + std::to_string(failing));
    Prepare();
    std::atomic<int> count{0};
    SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == failing ? number : 0; });
    try {
      GetParam().run(folder_);
      ADD_FAILURE() << "failed in silence";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), number == EIO ? ErrorCode::kIo : ErrorCode::kNoSpace);
      EXPECT_FALSE(error.where().file.empty());
    }
    SetFileFaultForTest({});
    ExpectWhole();
    ExpectNoRemains(/*after_kill=*/false);
    if (failing % 5 != 0 || State() == new_) continue;
    GetParam().run(folder_);
    EXPECT_EQ(State(), new_);
  }
}

// A disk that takes a few bytes at a time.
TEST_P(WriteFaultTest, WritesAreShort) {
  Prepare();
  SetFileFaultForTest([](FileOperation, size_t* bytes) {
    *bytes = std::min<size_t>(*bytes, 997);
    return 0;
  });
  GetParam().run(folder_);
  SetFileFaultForTest({});
  EXPECT_EQ(State(), new_);
  ExpectWhole();
}

INSTANTIATE_TEST_SUITE_P(Commands, WriteFaultTest, testing::ValuesIn(kCommands),
                         [](const auto& command) { return std::string(command.param.name); });

}  // namespace
}  // namespace moewe::convert
