#include "formats/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "moewe/error.h"

namespace moewe::formats {
namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};

// The header is a Python dictionary literal with three known keys.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  void Read() {
    Expect('{');
    while (!TryTake('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr") {
        descr = String();
      } else if (key == "fortran_order") {
        fortran = Bool();
      } else if (key == "shape") {
        shape = Tuple();
      } else {
        Fail("has the unknown key '" + key + "'");
      }
      if (TryTake('}')) break;
      Expect(',');
    }
    if (!descr || !fortran || !shape) Fail("lacks descr, fortran_order or shape");
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<uint64_t>> shape;

 private:
  [[noreturn]] void Fail(const std::string& problem) const {
    throw Error(ErrorCode::kParse, "the array's header " + problem, {path_, "npy header"});
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool TryTake(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!TryTake(c)) Fail(fmt::format("has no '{}' at {}", c, at_));
  }
  std::string String() {
    SkipSpace();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') Fail("has no string where one belongs");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) Fail("has a string without an end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool Bool() {
    SkipSpace();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    Fail("has neither True nor False as fortran_order");
  }
  std::vector<uint64_t> Tuple() {
    std::vector<uint64_t> values;
    Expect('(');
    while (!TryTake(')')) {
      values.push_back(Number());
      if (TryTake(')')) break;
      Expect(',');
    }
    return values;
  }
  uint64_t Number() {
    SkipSpace();
    constexpr size_t kMostDigits = 18;
    size_t digits = 0;
    uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && digits < kMostDigits) {
      value = value * 10 + static_cast<uint64_t>(text_[at_++] - '0');
      ++digits;
    }
    if (digits == 0) Fail("has no number where one belongs");
    return value;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

// An array whose elements are one of `kinds` ("biu"), little-endian, in C order.
struct Array {
  std::vector<uint64_t> shape;
  char kind = 0;
  uint64_t width = 0;  // bytes an element
  uint64_t count = 0;
  Bytes data;
};

Array ParseArray(Bytes file, const std::string& path, std::string_view kinds, const char* needed) {
  if (!IsNpy(file)) throw Error(ErrorCode::kInvalidMagic, "is no .npy file", {path, "magic"});
  ByteReader reader(file, path);
  reader.Take(kMagic.size(), "magic");
  const uint8_t major = reader.Take(2, "version")[0];
  if (major < 1 || major > 3) {
    throw Error(ErrorCode::kUnsupportedVersion, fmt::format("npy version {}", major),
                {path, "version"});
  }
  const uint64_t length = major == 1 ? reader.U16("header length") : reader.U32("header length");
  const Bytes text = reader.Take(length, "npy header");
  HeaderReader header({reinterpret_cast<const char*>(text.data()), text.size()}, path);
  header.Read();
  const std::string& type = *header.descr;
  const auto is_one_of = [](char c, std::string_view chars) {
    return chars.find(c) != std::string_view::npos;
  };
  const bool known = type.size() == 3 && is_one_of(type[0], "|<") && is_one_of(type[1], kinds) &&
                     is_one_of(type[2], "1248");
  if (!known) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("elements of type '{}': {} is needed", type, needed), {path, "descr"});
  }
  if (*header.fortran && header.shape->size() > 1) {
    throw Error(ErrorCode::kUnsupported, "the array is in Fortran order", {path, "fortran_order"});
  }
  Array array{std::move(*header.shape), type[1], static_cast<uint64_t>(type[2] - '0'), 0, {}};
  std::optional<uint64_t> count = 1;
  for (const uint64_t size : array.shape) {
    if (count) count = CheckedMul(*count, size);
  }
  const auto bytes = count ? CheckedMul(*count, array.width) : std::nullopt;
  if (!bytes || *bytes != reader.remaining()) {
    throw Error(ErrorCode::kBounds,
                fmt::format("the shape and the {} bytes of data do not fit", reader.remaining()),
                {path, "shape"});
  }
  array.count = *count;
  array.data = reader.Take(*bytes, "data");
  return array;
}

}  // namespace

bool IsNpy(Bytes file) {
  return file.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), file.begin(),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

NpyBits ParseNpyBits(Bytes file, const std::string& path) {
  Array array = ParseArray(file, path, "biu", "an array of truth values or integers");
  NpyBits result;
  result.shape = std::move(array.shape);
  result.values.resize(static_cast<size_t>(array.count), 0);
  for (size_t i = 0; i < array.data.size(); ++i) {
    if (array.data[i] != 0) result.values[i / static_cast<size_t>(array.width)] = 1;
  }
  return result;
}

NpyFloats ParseNpyFloats(Bytes file, const std::string& path) {
  constexpr char kNeeded[] = "float32 or float16";
  Array array = ParseArray(file, path, "f", kNeeded);
  if (array.width != 2 && array.width != 4) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("elements of {} bytes: {} is needed", array.width, kNeeded),
                {path, "descr"});
  }
  return {std::move(array.shape), array.width == 4 ? DType::kF32 : DType::kF16, array.data};
}

}  // namespace moewe::formats
