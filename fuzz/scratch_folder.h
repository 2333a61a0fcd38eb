// A folder in memory for parsers that take one: an input is split into its files.
#ifndef MOEWE_FUZZ_SCRATCH_FOLDER_H_
#define MOEWE_FUZZ_SCRATCH_FOLDER_H_

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace moewe::fuzz {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = "/dev/shm/moewe_fuzz.XXXXXX";
    if (!std::filesystem::exists("/dev/shm")) name = "/tmp/moewe_fuzz.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  // An input is a list of [u8 index into `names`][u16 length][bytes]; what does not fit is cut.
  void Fill(std::span<const uint8_t> input, std::span<const char* const> names) {
    for (const char* name : names) std::filesystem::remove(path_ + "/" + name);
    while (input.size() >= 3) {
      const char* name = names[input[0] % names.size()];
      const size_t length =
          std::min<size_t>(size_t{input[1]} | size_t{input[2]} << 8, input.size() - 3);
      std::ofstream(path_ + "/" + name, std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data() + 3),
                 static_cast<std::streamsize>(length));
      input = input.subspan(3 + length);
    }
  }

 private:
  std::string path_;
};

}  // namespace moewe::fuzz

#endif  // MOEWE_FUZZ_SCRATCH_FOLDER_H_
