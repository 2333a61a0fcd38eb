// Growth in place: what the file is afterwards, what stays of the old one, and what a fault leaves.
#include "formats/cmf/append.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/bytes_of.h"
#include "formats/test_util.h"
#include "formats/verify.h"
#include "golden.h"

namespace moewe::formats {
namespace {

namespace fs = std::filesystem;

std::string File(const std::string& name) {
  return golden::Path("cmf/files/" + name + ".cmf").string();
}

class AppendTest : public ScratchTest {
 protected:
  AppendTest() {
    fs::copy_file(File("dense_qwen3_q8"), file_);
    fs::permissions(file_, fs::perms::owner_read | fs::perms::owner_write);
    old_ = golden::ReadBytes(file_);
  }
  ~AppendTest() override { SetFileFaultForTest({}); }

  std::unique_ptr<CmfAppender> Open() const {
    return CmfAppender::Open(file_, [](const std::string&) { FAIL() << "nobody else is there"; });
  }
  // The skill of a golden file that was grown from the same one.
  void Grow() const {
    const auto grown = CmfFile::Open(File("skill_appended"));
    const auto appender = Open();
    for (const TensorView& tensor : grown->tensors()) {
      if (!tensor.name.starts_with("skill.")) continue;
      appender->Add(tensor.name, tensor.dtype, tensor.shape, tensor.bytes);
    }
    appender->Commit(grown->config());
  }
  bool Sound() const {
    ThreadPool pool(1);
    const VerifyReport report = Verify(file_, {}, &pool, [](uint64_t, uint64_t) {});
    for (const VerifyProblem& problem : report.problems) ADD_FAILURE() << problem.message;
    return report.ok();
  }
  std::vector<uint8_t> Now() const { return golden::ReadBytes(file_); }

  std::string file_ = At("m.cmf");
  std::vector<uint8_t> old_;
};

TEST_F(AppendTest, GrowsAsTheGoldenFileDid) {
  Grow();
  EXPECT_TRUE(Sound());
  const std::vector<uint8_t> grown = Now();
  EXPECT_TRUE(std::equal(old_.begin() + 128, old_.end(), grown.begin() + 128));
  const auto mine = CmfFile::Open(file_);
  const auto wanted = CmfFile::Open(File("skill_appended"));
  const cmf::Envelope& a = mine->contents().envelope;
  const cmf::Envelope& b = wanted->contents().envelope;
  EXPECT_EQ(a.data.length, b.data.length);
  EXPECT_EQ(a.header.offset, b.header.offset);
  EXPECT_EQ(a.directory_hash, b.directory_hash);
  EXPECT_EQ(a.required_features, b.required_features);
  EXPECT_EQ(nlohmann::json(mine->config()), nlohmann::json(wanted->config()));
  EXPECT_TRUE(std::ranges::equal(mine->tokenizer_json(), wanted->tokenizer_json()));
}

TEST_F(AppendTest, FeaturesFollowWhatIsInTheDirectory) {
  const auto source = CmfFile::Open(File("dense_qwen3_q8_2f"));
  const TensorView& tensor = *source->Find("model.layers.0.mlp.up_proj.weight");
  ASSERT_EQ(tensor.dtype, DType::kQ82f);
  {
    const auto appender = Open();
    appender->Add("skill.x.up", tensor.dtype, tensor.shape, tensor.bytes);
    appender->Commit(appender->file().config());
  }
  EXPECT_EQ(CmfFile::Open(file_)->contents().envelope.required_features,
            cmf::kTensorDir | cmf::kQuant2f);
  {
    const auto appender = Open();
    appender->Remove("skill.x.up");
    EXPECT_EQ(Thrown([&] { appender->Remove("skill.x.down"); }), ErrorCode::kUnknownName);
    appender->Commit(appender->file().config());
  }
  EXPECT_TRUE(Sound());
  const auto file = CmfFile::Open(file_);
  EXPECT_EQ(file->contents().envelope.required_features, cmf::kTensorDir);
  EXPECT_EQ(file->contents().envelope.directory_hash,
            CmfFile::Open(File("dense_qwen3_q8"))->contents().envelope.directory_hash);
}

TEST_F(AppendTest, WithoutCommitTheFileIsAsItWas) {
  const std::vector<uint8_t> bytes(100000, 7);
  {
    const auto appender = Open();
    appender->Add("a", DType::kU8, {bytes.size()}, bytes);
    EXPECT_EQ(CmfFile::Open(file_)->Find("a"), nullptr);
    EXPECT_EQ(Thrown([&] { appender->Add("a", DType::kU8, {1}, {}); }), ErrorCode::kUsage);
    EXPECT_EQ(Thrown([&] { appender->Add("lm_head.weight", DType::kU8, {1}, {}); }),
              ErrorCode::kUsage);
    EXPECT_EQ(Thrown([&] { appender->Add("\xff", DType::kU8, {1}, {}); }), ErrorCode::kUsage);
  }
  EXPECT_EQ(Now(), old_);
}

// Bytes behind the end, of an interrupted run or of whoever put them there, stay and harm nothing.
TEST_F(AppendTest, ADeadTailIsSkipped) {
  std::ofstream(file_, std::ios::app | std::ios::binary) << std::string(999, '#');
  const std::vector<uint8_t> with_tail = Now();
  Grow();
  EXPECT_TRUE(Sound());
  const std::vector<uint8_t> grown = Now();
  EXPECT_TRUE(std::equal(with_tail.begin() + 128, with_tail.end(), grown.begin() + 128));
}

TEST_F(AppendTest, AFileThatWasReplacedIsNotWritten) {
  const auto appender = Open();
  appender->Add("a", DType::kU8, {3}, BytesOf("abc"));
  fs::copy_file(File("dense_qwen3_q4"), At("other.cmf"));
  fs::rename(At("other.cmf"), file_);
  EXPECT_EQ(Thrown([&] { appender->Commit(appender->file().config()); }), ErrorCode::kIo);
  EXPECT_EQ(Now(), golden::ReadBytes(File("dense_qwen3_q4")));
}

TEST_F(AppendTest, EditorsWaitForEachOther) {
  auto first = Open();
  first->Add("a", DType::kU8, {3}, BytesOf("abc"));
  std::atomic<bool> waits{false};
  std::thread second([&] {
    const auto appender = CmfAppender::Open(file_, [&](const std::string&) {
      waits = true;
      waits.notify_one();
    });
    appender->Add("b", DType::kU8, {3}, BytesOf("def"));
    appender->Commit(appender->file().config());
  });
  waits.wait(false);
  first->Commit(first->file().config());
  first.reset();
  second.join();
  const auto file = CmfFile::Open(file_);
  EXPECT_NE(file->Find("a"), nullptr);
  EXPECT_NE(file->Find("b"), nullptr);
  EXPECT_TRUE(Sound());
}

TEST_F(AppendTest, ASetGrowsInItsFirstShard) {
  for (const char* no : {"1", "2", "3"}) {
    const std::string name = std::string("sharded-0000") + no + "-of-00003";
    fs::copy_file(File(name), At(name + ".cmf"));
    fs::permissions(At(name + ".cmf"), fs::perms::owner_read | fs::perms::owner_write);
  }
  {
    const auto appender =
        CmfAppender::Open(At("sharded-00002-of-00003.cmf"), [](const std::string&) {});
    EXPECT_EQ(appender->path(), At("sharded-00001-of-00003.cmf"));
    appender->Add("a", DType::kU8, {3}, BytesOf("abc"));
    appender->Commit(CmfFile::OpenAlone(appender->path())->config());
  }
  const auto set = CmfFile::Open(At("sharded-00003-of-00003.cmf"));
  EXPECT_EQ(set->Find("a")->file_index, 0u);
}

// The kernel writes what lies in one sector at once or not at all, so that only longer writes get
// half way.
size_t HalfOf(size_t bytes) { return bytes > 512 ? bytes / 2 : bytes; }

class AppendFaultTest : public AppendTest {
 protected:
  int CountOperations() {
    int count = 0;
    SetFileFaultForTest([&](FileOperation, size_t*) {
      ++count;
      return 0;
    });
    Grow();
    SetFileFaultForTest({});
    new_ = Now();
    return count;
  }
  void PutOld() const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(old_.data()),
               static_cast<std::streamsize>(old_.size()));
  }
  std::vector<uint8_t> new_;
};

TEST_F(AppendFaultTest, KilledAtAnyOperationTheFileIsTheOldOrTheNewOne) {
  const int operations = CountOperations();
  ASSERT_GE(operations, 11);  // six tensors, header, directory, sync, envelope, sync
  int old = 0;
  for (int last = 0; last < operations; ++last) {
    SCOPED_TRACE(last);
    PutOld();
    const pid_t child = fork();
    if (child == 0) {
      int count = 0;
      SetFileFaultForTest([&](FileOperation, size_t* bytes) {
        const int now = count++;
        if (now == last) *bytes = HalfOf(*bytes);
        if (now > last) raise(SIGKILL);
        return 0;
      });
      Grow();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const std::vector<uint8_t> now = Now();
    if (std::equal(old_.begin(), old_.begin() + 128, now.begin())) {
      ++old;
      ASSERT_GE(now.size(), old_.size());
      EXPECT_TRUE(std::equal(old_.begin(), old_.end(), now.begin()));
      EXPECT_TRUE(Sound());
      Grow();  // behind what was left
      EXPECT_TRUE(Sound());
    } else {
      EXPECT_EQ(now, new_);
    }
  }
  EXPECT_EQ(old, operations - 2);
}

TEST_F(AppendFaultTest, AFailingOperationLeavesTheOldFile) {
  const int operations = CountOperations();
  for (const int number : {EIO, ENOSPC}) {
    for (int failing = 0; failing < operations; ++failing) {
      SCOPED_TRACE(failing);
      PutOld();
      int count = 0;
      SetFileFaultForTest([&](FileOperation, size_t*) { return count++ == failing ? number : 0; });
      EXPECT_EQ(Thrown([&] { Grow(); }), number == EIO ? ErrorCode::kIo : ErrorCode::kNoSpace);
      SetFileFaultForTest({});
      // After the envelope there is only the last sync.
      EXPECT_EQ(Now(), failing + 1 == operations ? new_ : old_);
      EXPECT_TRUE(Sound());
    }
  }
}

// A disk that stops in the middle of the envelope: what can be put back is.
TEST_F(AppendFaultTest, AHalfWrittenEnvelopeIsPutBack) {
  const int operations = CountOperations();
  PutOld();
  int count = 0;
  SetFileFaultForTest([&](FileOperation, size_t* bytes) {
    const int now = count++;
    if (now == operations - 2) *bytes = 60;
    return now == operations - 1 ? EIO : 0;
  });
  EXPECT_EQ(Thrown([&] { Grow(); }), ErrorCode::kIo);
  SetFileFaultForTest({});
  EXPECT_EQ(Now(), old_);
}

}  // namespace
}  // namespace moewe::formats
