#include "text/jinja/text_wrap.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/filter_tools.h"
#include "text/jinja/ops.h"
#include "text/jinja/printer.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

// textwrap knows only ASCII whitespace.
bool IsBlank(char32_t c) { return c == ' ' || (c >= 9 && c <= 13); }

struct Chunk {
  Str text;
  size_t length = 0;
  bool blank = false;
};

Chunk MakeChunk(const Str& line, size_t begin, size_t end, bool blank) {
  Chunk chunk{line.Substr(begin, end), 0, blank};
  chunk.length = CountCodePoints(chunk.text.text);
  return chunk;
}

bool IsLetter(char32_t c) { return IsWordChar(c) && !IsDecimal(c); }

// The words and blanks of a line. Words may be cut behind a hyphen between letters, and around
// dashes.
std::vector<Chunk> Chunks(const Str& line, bool hyphens) {
  std::vector<Chunk> chunks;
  const std::string& text = line.text;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    size_t next = pos;
    const bool blank = IsBlank(NextCodePoint(text, next));
    while (pos < text.size()) {
      next = pos;
      if (IsBlank(NextCodePoint(text, next)) != blank) break;
      pos = next;
    }
    if (blank || !hyphens) {
      chunks.push_back(MakeChunk(line, begin, pos, blank));
      continue;
    }
    // Code points of the word, for looking around hyphens.
    std::vector<std::pair<size_t, char32_t>> word;
    for (size_t p = begin; p < pos;) {
      const size_t start = p;
      word.emplace_back(start, NextCodePoint(text, p));
    }
    const auto at = [&](size_t i) { return i < word.size() ? word[i].second : U'\0'; };
    size_t chunk_begin = begin;
    for (size_t i = 0; i < word.size(); ++i) {
      if (at(i) != '-') continue;
      size_t run = i;
      while (at(run) == '-') ++run;
      if (run - i >= 2 && i > 0 && run < word.size() && IsWordChar(at(run)) &&
          (IsWordChar(at(i - 1)) ||
           std::string_view("!\"'&.,?").find(static_cast<char>(at(i - 1))) !=
               std::string_view::npos)) {
        // A dash stands by itself.
        if (word[i].first > chunk_begin)
          chunks.push_back(MakeChunk(line, chunk_begin, word[i].first, false));
        chunks.push_back(MakeChunk(line, word[i].first, word[run].first, false));
        chunk_begin = word[run].first;
      } else if (run - i == 1 && i >= 2 && IsLetter(at(i - 1)) && IsLetter(at(i - 2)) &&
                 IsLetter(at(i + 1)) &&
                 (IsLetter(at(i + 2)) || (at(i + 2) == '-' && IsLetter(at(i + 3))))) {
        chunks.push_back(MakeChunk(line, chunk_begin, word[i + 1].first, false));
        chunk_begin = word[i + 1].first;
      }
      i = run - 1;
    }
    if (chunk_begin < pos) chunks.push_back(MakeChunk(line, chunk_begin, pos, false));
  }
  return chunks;
}

}  // namespace

std::vector<Str> WrapLine(const Str& line, size_t width, bool break_long_words,
                          bool break_on_hyphens) {
  Budget::SpendBytes(line.text.size() * 4);
  std::vector<Chunk> rest = Chunks(line, break_on_hyphens);
  std::reverse(rest.begin(), rest.end());
  std::vector<Str> lines;
  while (!rest.empty()) {
    std::vector<Chunk> current;
    size_t length = 0;
    if (rest.back().blank && !lines.empty()) rest.pop_back();
    while (!rest.empty() && length + rest.back().length <= width) {
      length += rest.back().length;
      current.push_back(std::move(rest.back()));
      rest.pop_back();
    }
    if (!rest.empty() && rest.back().length > width) {
      if (break_long_words) {
        const size_t room =
            width - length;  // may be 0: then nothing is taken, and blanks before it stay
        Chunk& long_chunk = rest.back();
        size_t cut = std::min(room, long_chunk.length);
        const std::string& text = long_chunk.text.text;
        if (break_on_hyphens && long_chunk.length > room) {
          const size_t hyphen = text.substr(0, OffsetOfCodePoint(text, room)).rfind('-');
          if (hyphen != std::string::npos && hyphen > 0 &&
              text.substr(0, hyphen).find_first_not_of('-') != std::string::npos) {
            cut = CountCodePoints(std::string_view(text).substr(0, hyphen + 1));
          }
        }
        const size_t offset = OffsetOfCodePoint(text, cut);
        Chunk head{long_chunk.text.Substr(0, offset), cut, cut == 0};
        long_chunk = Chunk{long_chunk.text.Substr(offset, text.size()), long_chunk.length - cut,
                           long_chunk.blank};
        length += cut;
        current.push_back(std::move(head));
      } else if (current.empty()) {
        current.push_back(std::move(rest.back()));
        rest.pop_back();
      }
    }
    if (!current.empty() && current.back().blank) current.pop_back();
    if (current.empty()) continue;
    Str out;
    for (const Chunk& chunk : current) out.Append(chunk.text);
    lines.push_back(std::move(out));
  }
  return lines;
}

namespace {

constexpr size_t kPrettyWidth = 80;

// The value with the keys of its dicts in order.
Value SortedKeys(const Value& value) {
  const DepthGuard depth;
  if (value.is_dict()) {
    std::vector<Value> keys;
    for (const Dict::Entry& entry : value.dict().entries()) keys.push_back(entry.key);
    try {
      SortByKey(keys, std::vector<Value>(keys), false);
    } catch (const Exception& problem) {
      if (problem.type != "TypeError") throw;
    }
    Dict sorted;
    for (const Value& key : keys) sorted.Set(key, SortedKeys(*value.dict().Find(key)));
    return Value::Map(std::move(sorted));
  }
  if (!value.is_list() && !value.is_tuple()) return value;
  std::vector<Value> items;
  for (const Value& item : value.items()) items.push_back(SortedKeys(item));
  return value.is_list() ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

// `indent`: the column where the value begins; `allowance`: what must still fit behind it.
void AppendPretty(Str& out, const Value& value, size_t indent, size_t allowance) {
  const DepthGuard depth;
  const Str flat = Repr(value);
  const size_t room = kPrettyWidth > indent + allowance ? kPrettyWidth - indent - allowance : 0;
  const bool container = value.is_list() || value.is_tuple() || value.is_dict();
  if (CountCodePoints(flat.text) <= room || !container || Length(value) == 0)
    return out.Append(flat);
  const std::string newline = ",\n" + std::string(indent + 1, ' ');
  const char* close = value.is_list()             ? "]"
                      : value.is_dict()           ? "}"
                      : value.items().size() == 1 ? ",)"
                                                  : ")";
  out.Append(value.is_list() ? "[" : value.is_dict() ? "{" : "(");
  const auto count = static_cast<size_t>(Length(value));
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out.Append(newline);
    const size_t behind = i + 1 == count ? allowance + 1 : 1;
    if (value.is_dict()) {
      const Dict::Entry& entry = value.dict().entries()[i];
      const Str key = Repr(entry.key);
      out.Append(key);
      out.Append(": ");
      AppendPretty(out, entry.value, indent + 1 + CountCodePoints(key.text) + 2, behind);
    } else {
      AppendPretty(out, value.items()[i], indent + 1, behind);
    }
  }
  out.Append(close);
}

}  // namespace

Str PrettyRepr(const Value& value) {
  Str out;
  AppendPretty(out, SortedKeys(value), 0, 0);
  return out;
}

}  // namespace moewe::text::jinja
