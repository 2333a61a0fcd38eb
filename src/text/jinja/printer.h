// How values become text: Python's str() and repr(), and HTML escaping.
#ifndef MOEWE_TEXT_JINJA_PRINTER_H_
#define MOEWE_TEXT_JINJA_PRINTER_H_

#include <string>

#include "text/jinja/value.h"

namespace moewe::text::jinja {

Str ToStr(const Value& value);                 // str(value)
Str Repr(const Value& value);                  // repr(value)
void AppendStr(Str& out, const Value& value);  // as ToStr, without the copy
std::string FloatRepr(double value);           // "1.0", "1e+16", "inf", "nan"
Str EscapeHtml(const Str& text);               // markupsafe.escape of a plain string; safe
// markupsafe.escape: a string as it is if it is safe already.
Str Escaped(const Value& value);

}  // namespace moewe::text::jinja

#endif  // MOEWE_TEXT_JINJA_PRINTER_H_
