// Text that comes from files, shown to a person.
#ifndef MOEWE_BASE_SHOWN_H_
#define MOEWE_BASE_SHOWN_H_

#include <string>
#include <string_view>

namespace moewe {

// `text` as part of one line on a terminal: control characters (C0, DEL, C1) and bytes that are not
// UTF-8 become \n, \t, \r, \x1b, \u0085, so that a name can neither move the cursor nor pass for
// another line. The rest stays as it is, backslashes too.
std::string Shown(std::string_view text);

}  // namespace moewe

#endif  // MOEWE_BASE_SHOWN_H_
