// Several files that are replaced by new ones together.
#ifndef MOEWE_PLATFORM_REPLACED_FILES_H_
#define MOEWE_PLATFORM_REPLACED_FILES_H_

#include <string>
#include <vector>

namespace moewe {

// Files that belong together can't get their names at one moment. So the old ones are first renamed
// to "<name>.moewe-replaced", the one that readers open first of all, and it is the last to be
// there again: nobody finds an old file beside a new one. If the new ones do not come, the old ones
// come back; after a kill when the same files are written the next time. Symbolic links stay.
//
//   ReplacedFiles old({vault, scout});  // puts right what a killed process left
//   ... make the new ones, complete, under other names ...
//   old.SetAside();
//   ... give them their names, `vault` last ...
//   old.Forget();
//
// One thread; one process at a time for the same files.
class ReplacedFiles {
 public:
  // The first of `paths` is the one that readers open. Throws Error{kIo} for links in a circle.
  explicit ReplacedFiles(const std::vector<std::string>& paths);
  // Without Forget: the old files get their names again, and new ones that had none before go.
  ~ReplacedFiles();
  ReplacedFiles(const ReplacedFiles&) = delete;
  ReplacedFiles& operator=(const ReplacedFiles&) = delete;

  // Throws Error{kIo, kNoSpace}.
  void SetAside();
  void Forget();

 private:
  struct File {
    std::string path;   // behind links
    std::string aside;  // where it waits; an empty file there says that there was none
  };

  static void PutBack(const File& file) noexcept;

  std::vector<File> files_;
  bool aside_ = false;  // put back what is found there
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_REPLACED_FILES_H_
