// Writing a .smoe vault expert by expert: never more than one in memory, and continued where an
// earlier run stopped.
//
//   VaultPlan plan = PlanVault(...);
//   VaultWriter writer(plan, dst, options);
//   for (size_t i = 0; i < plan.experts.size(); ++i) {
//     if (!writer.done(i)) writer.Write(i, Encode(i));
//   }
//   writer.Seal();     // complete and synced as "<dst>.partial"
//   writer.Publish();  // under its name
#ifndef MOEWE_FORMATS_SMOE_VAULT_WRITER_H_
#define MOEWE_FORMATS_SMOE_VAULT_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "formats/cmf/write_journal.h"
#include "formats/cmf/writer.h"
#include "formats/smoe/layout.h"
#include "platform/file_io.h"

namespace moewe::formats::smoe {

// Everything before the blobs, and where each of them goes.
struct VaultPlan {
  Header header;
  ArchBlock arch;
  std::vector<Expert> experts;  // by layer, then expert
  // What else decides the bytes: a resume requires the same.
  std::string source_id;
};

struct PlannedExpert {
  uint32_t layer = 0;
  uint32_t expert = 0;
  uint32_t width = 0;  // rows of gate and up
};

// Layout of a v2 vault as its own writer makes it: gate, up, down, each codes and then scales,
// blobs one after the other. `experts` sorted by layer, then expert. Throws Error{kUnsupported} for
// more experts than the header can count.
VaultPlan PlanVault(uint32_t bits, uint32_t d_model, uint32_t vocab_size,
                    const std::vector<PlannedExpert>& experts, const ArchBlock& arch);

// One thread; `dst` is locked for other processes. Throws Error{kNoSpace, kIo}, at once if the disk
// can't hold the vault, kUsage for a `dst` that is there and no regular file and for a partial file
// that is not ours. A `dst` that is a symbolic link stays one.
class VaultWriter {
 public:
  VaultWriter(VaultPlan plan, std::string dst, const CmfWriterOptions& options);
  ~VaultWriter();
  VaultWriter(const VaultWriter&) = delete;
  VaultWriter& operator=(const VaultWriter&) = delete;

  CmfResume resumed() const { return resumed_; }
  bool done(size_t index) const { return done_.at(index); }
  size_t count_done() const;
  const std::string& partial_path() const { return partial_; }

  // raw_size bytes of expert `index`.
  void Write(size_t index, Bytes blob);
  void Seal();
  void Publish();

 private:
  JournalIdentity Identity() const;
  std::vector<JournalRecord> Recover(const JournalIdentity& identity);
  void RemovePartial();

  VaultPlan plan_;
  std::vector<uint8_t> tables_;
  CmfWriterOptions options_;
  std::string dst_;     // as asked, for messages
  std::string target_;  // behind links
  std::string partial_;
  std::string journal_path_;
  FileDescriptor file_;
  std::optional<WriteJournal> journal_;
  std::vector<bool> done_;
  CmfResume resumed_ = CmfResume::kNothing;
  bool finished_ = false;
};

}  // namespace moewe::formats::smoe

#endif  // MOEWE_FORMATS_SMOE_VAULT_WRITER_H_
