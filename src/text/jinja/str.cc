#include "text/jinja/str.h"

#include <algorithm>

#include "text/jinja/budget.h"
#include "text/jinja/error.h"

namespace moewe::text::jinja {
namespace {

void AddSpan(std::vector<Span>& spans, size_t begin, size_t end) {
  if (begin >= end) return;
  if (!spans.empty() && spans.back().end == begin) {
    spans.back().end = end;
  } else {
    spans.push_back({begin, end});
  }
}

}  // namespace

Str Str::FromMessage(std::string text) {
  Str str(std::move(text));
  AddSpan(str.spans, 0, str.text.size());
  return str;
}

Str Str::Substr(size_t begin, size_t end) const {
  Str part;
  part.Append(*this, begin, end);
  return part;
}

void Str::Append(const Str& other, size_t begin, size_t end) {
  CheckStringSize(text.size() + (end - begin));
  const size_t base = text.size();
  text.append(other.text, begin, end - begin);
  auto span = std::partition_point(other.spans.begin(), other.spans.end(),
                                   [&](const Span& s) { return s.end <= begin; });
  for (; span != other.spans.end() && span->begin < end; ++span) {
    AddSpan(spans, base + std::max(span->begin, begin) - begin,
            base + std::min(span->end, end) - begin);
  }
}

void Str::Append(std::string_view piece, bool message) {
  CheckStringSize(text.size() + piece.size());
  if (message) AddSpan(spans, text.size(), text.size() + piece.size());
  text.append(piece);
}

Str Str::Derived(std::string derived) const {
  return from_message() ? FromMessage(std::move(derived)) : Str(std::move(derived));
}

void CheckStringSize(size_t bytes) {
  if (bytes > kMaxStringBytes) {
    Raise("MemoryError", "a string of the template is longer than " +
                             std::to_string(kMaxStringBytes >> 20) + " MiB");
  }
}

}  // namespace moewe::text::jinja
