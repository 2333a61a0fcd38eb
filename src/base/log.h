// Messages for the person at the terminal, on stderr. Results never go here.
#ifndef MOEWE_BASE_LOG_H_
#define MOEWE_BASE_LOG_H_

#include <string>

namespace moewe {

enum class LogLevel : int { kQuiet = 0, kWarning = 1, kInfo = 2, kDebug = 3 };

// Messages above `level` are dropped. At the start: kInfo, or the environment's MOEWE_LOG = quiet,
// warning, info or debug. Any thread.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);

// One line each, written whole, so that lines of several threads do not mix. Any thread.
void LogWarning(const std::string& message);  // "moewe: warning: ..."
void LogInfo(const std::string& message);     // "moewe: ..."
void LogDebug(const std::string& message);

}  // namespace moewe

#endif  // MOEWE_BASE_LOG_H_
