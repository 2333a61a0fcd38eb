#include "platform/replaced_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "platform/file_io.h"
#include "platform/write_target.h"

namespace moewe {
namespace {

bool IsRegular(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

ReplacedFiles::ReplacedFiles(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    File file;
    file.path = BehindLinks(path);
    file.aside = file.path + ".moewe-replaced";
    files_.push_back(std::move(file));
  }
  // Killed after the new files were complete, or before?
  const bool complete = IsRegular(files_.front().path);
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    if (!IsRegular(file->aside)) continue;
    if (complete) {
      unlink(file->aside.c_str());
    } else {
      PutBack(*file);
    }
  }
}

ReplacedFiles::~ReplacedFiles() {
  if (!aside_) return;
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    if (IsRegular(file->aside)) PutBack(*file);
  }
}

void ReplacedFiles::SetAside() {
  aside_ = true;
  for (const File& file : files_) {
    if (IsRegular(file.path)) {
      RenameAndSync(file.path, file.aside);
    } else if (access(file.path.c_str(), F_OK) != 0) {  // pipes and devices stay
      FileDescriptor::OpenForWriting(file.aside, /*truncate=*/true);
    }
  }
}

void ReplacedFiles::Forget() {
  aside_ = false;
  for (const File& file : files_) unlink(file.aside.c_str());
}

void ReplacedFiles::PutBack(const File& file) noexcept {
  struct stat status = {};
  if (stat(file.aside.c_str(), &status) == 0 && status.st_size > 0) {
    std::rename(file.aside.c_str(), file.path.c_str());
    return;
  }
  if (IsRegular(file.path)) unlink(file.path.c_str());
  unlink(file.aside.c_str());
}

}  // namespace moewe
