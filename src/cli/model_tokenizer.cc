#include "cli/model_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "formats/checkpoint.h"
#include "moewe/error.h"
#include "platform/mapped_file.h"
#include "platform/paths.h"

namespace moewe::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// JSON by its bytes: an object's brace, then its first key. (The length at the start of a
// safetensors file can look like a brace, but is followed by zeros.)
bool LooksLikeJson(Bytes bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()),
                               std::min<size_t>(bytes.size(), 4096));
  const size_t brace = start.find_first_not_of(kBlanks);
  if (brace == std::string_view::npos || start[brace] != '{') return false;
  const size_t next = start.find_first_not_of(kBlanks, brace + 1);
  return next == std::string_view::npos || start[next] == '"' || start[next] == '}';
}

std::unique_ptr<text::Tokenizer> LoadFile(const MappedFile& file, text::Tokenizer::Limits limits) {
  auto tokenizer = text::Tokenizer::FromJson(file.bytes(), file.path(), limits);
  file.Check();
  return tokenizer;
}

}  // namespace

std::unique_ptr<text::Tokenizer> LoadTokenizer(const std::string& model,
                                               text::Tokenizer::Limits limits) {
  namespace fs = std::filesystem;
  if (IsFolder(model)) {
    const fs::path inside = fs::path(model) / "tokenizer.json";
    if (PathExists(inside.string())) return LoadFile(*MappedFile::Open(inside.string()), limits);
    throw Error(ErrorCode::kNotFound, "the folder has no tokenizer.json",
                {.file = model, .field = ""});
  }
  {
    const auto file = MappedFile::Open(model);
    if (LooksLikeJson(file->bytes())) return LoadFile(*file, limits);
  }
  const auto checkpoint = formats::OpenCheckpoint(model);
  if (checkpoint->tokenizer_json().empty()) {
    throw Error(ErrorCode::kNotFound, "the model carries no tokenizer",
                {.file = model, .field = ""});
  }
  return text::Tokenizer::FromJson(checkpoint->tokenizer_json(), model, limits);
}

std::vector<text::TokenId> ParseTokenIds(std::string_view list) {
  std::vector<text::TokenId> ids;
  if (list.find_first_not_of(kBlanks) == std::string_view::npos) return ids;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    const size_t first = item.find_first_not_of(kBlanks);
    item = first == std::string_view::npos
               ? std::string_view()
               : item.substr(first, item.find_last_not_of(kBlanks) - first + 1);
    text::TokenId id = 0;
    const auto [end, problem] = std::from_chars(item.data(), item.data() + item.size(), id);
    if (problem != std::errc() || end != item.data() + item.size() || id < 0) {
      throw Error(ErrorCode::kUsage,
                  "--ids takes numbers with commas between them, not '" + std::string(item) + "'");
    }
    ids.push_back(id);
    if (comma == std::string_view::npos) return ids;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace moewe::cli
