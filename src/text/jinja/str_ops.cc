#include "text/jinja/str_ops.h"

#include <algorithm>
#include <cstring>

#include "text/jinja/budget.h"
#include "text/jinja/error.h"
#include "text/jinja/unicode.h"

namespace moewe::text::jinja {
namespace {

bool InSet(std::string_view set, char32_t wanted) {
  for (size_t pos = 0; pos < set.size();) {
    if (NextCodePoint(set, pos) == wanted) return true;
  }
  return false;
}

}  // namespace

Str Strip(const Str& str, Ends ends, const std::string* chars) {
  const std::string& text = str.text;
  const auto drop = [&](char32_t c) {
    if (chars == nullptr) return IsSpace(c);
    Budget::SpendBytes(chars->size());
    return InSet(*chars, c);
  };
  size_t begin = 0;
  size_t end = text.size();
  while (ends != Ends::kRight && begin < end) {
    size_t next = begin;
    if (!drop(NextCodePoint(text, next))) break;
    begin = next;
  }
  while (ends != Ends::kLeft && end > begin) {
    const size_t start = PreviousStart(text, end);
    size_t next = start;
    if (!drop(NextCodePoint(text, next))) break;
    end = start;
  }
  return str.Substr(begin, end);
}

size_t Find(std::string_view text, std::string_view part, size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  Budget::SpendBytes(part.size());
  if (part.empty()) return begin;
  // memmem is linear; string_view::find is not.
  const void* found = memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  if (found == nullptr) {
    Budget::SpendBytes(text.size() - begin);
    return std::string_view::npos;
  }
  const auto position = static_cast<size_t>(static_cast<const char*>(found) - text.data());
  Budget::SpendBytes(position - begin);
  return position;
}

size_t FindLast(std::string_view text, std::string_view part) {
  if (part.empty()) return text.size();
  if (part.size() > text.size()) return std::string_view::npos;
  // Linear as well: the mirrored search.
  std::string mirrored_text(text.rbegin(), text.rend());
  const std::string mirrored_part(part.rbegin(), part.rend());
  const size_t found = Find(mirrored_text, mirrored_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::vector<Str> Split(const Str& str, const std::string* separator, int64_t limit) {
  std::vector<Str> parts;
  const std::string& text = str.text;
  Budget::SpendBytes(text.size());
  if (separator != nullptr) {
    if (separator->empty()) RaiseValueError("empty separator");
    size_t begin = 0;
    for (int64_t cuts = 0; limit < 0 || cuts < limit; ++cuts) {
      const size_t found = Find(text, *separator, begin);
      if (found == std::string::npos) break;
      parts.push_back(str.Substr(begin, found));
      begin = found + separator->size();
    }
    parts.push_back(str.Substr(begin, text.size()));
    return parts;
  }
  size_t pos = 0;
  while (true) {
    // Whitespace before a word.
    while (pos < text.size()) {
      size_t next = pos;
      if (!IsSpace(NextCodePoint(text, next))) break;
      pos = next;
    }
    if (pos >= text.size()) return parts;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) >= limit) {
      parts.push_back(str.Substr(pos, text.size()));
      return parts;
    }
    const size_t begin = pos;
    while (pos < text.size()) {
      size_t next = pos;
      if (IsSpace(NextCodePoint(text, next))) break;
      pos = next;
    }
    parts.push_back(str.Substr(begin, pos));
  }
}

std::vector<Str> SplitFromRight(const Str& str, const std::string* separator, int64_t limit) {
  if (limit < 0) return Split(str, separator, limit);
  std::vector<Str> parts;
  const std::string& text = str.text;
  Budget::SpendBytes(text.size());
  size_t end = text.size();
  if (separator != nullptr) {
    if (separator->empty()) RaiseValueError("empty separator");
    for (int64_t cuts = 0; cuts < limit; ++cuts) {
      const size_t found = FindLast(std::string_view(text).substr(0, end), *separator);
      if (found == std::string::npos) break;
      parts.push_back(str.Substr(found + separator->size(), end));
      end = found;
    }
    parts.push_back(str.Substr(0, end));
  } else {
    const auto skip = [&](bool spaces) {
      while (end > 0) {
        const size_t start = PreviousStart(text, end);
        size_t next = start;
        if (IsSpace(NextCodePoint(text, next)) != spaces) break;
        end = start;
      }
    };
    while (true) {
      skip(true);
      if (end == 0) break;
      if (static_cast<int64_t>(parts.size()) >= limit) {
        parts.push_back(str.Substr(0, end));
        break;
      }
      const size_t word_end = end;
      skip(false);
      parts.push_back(str.Substr(end, word_end));
    }
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Str> SplitLines(const Str& str, bool keep_ends) {
  std::vector<Str> lines;
  const std::string& text = str.text;
  Budget::SpendBytes(text.size());
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    if (!IsLineBreak(NextCodePoint(text, pos))) continue;
    if (text[start] == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(str.Substr(begin, keep_ends ? pos : start));
    begin = pos;
  }
  if (begin < text.size()) lines.push_back(str.Substr(begin, text.size()));
  return lines;
}

Str Replace(const Str& str, std::string_view old_text, const Str& new_text, int64_t limit) {
  Str out;
  const std::string& text = str.text;
  Budget::SpendBytes(text.size());
  size_t begin = 0;
  int64_t count = 0;
  if (old_text.empty()) {
    // Before every character and at the end.
    for (; limit < 0 || count < limit; ++count) {
      Budget::Spend(1);
      out.Append(new_text);
      if (begin >= text.size()) return out;
      size_t next = begin;
      NextCodePoint(text, next);
      out.Append(str, begin, next);
      begin = next;
    }
    out.Append(str, begin, text.size());
    return out;
  }
  for (; limit < 0 || count < limit; ++count) {
    const size_t found = Find(text, old_text, begin);
    if (found == std::string::npos) break;
    out.Append(str, begin, found);
    out.Append(new_text);
    begin = found + old_text.size();
  }
  out.Append(str, begin, text.size());
  return out;
}

Str JoinStrings(const std::vector<Str>& parts, const Str& separator) {
  Str out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(parts[i]);
  }
  return out;
}

}  // namespace moewe::text::jinja
