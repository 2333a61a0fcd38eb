#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/shown.h"

namespace moewe {
namespace {

LogLevel FromEnvironment() {
  const char* value = std::getenv("MOEWE_LOG");
  const std::string_view name = value == nullptr ? "" : value;
  if (name == "quiet") return LogLevel::kQuiet;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "debug") return LogLevel::kDebug;
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& Level() {
  static std::atomic<LogLevel> level{FromEnvironment()};
  return level;
}

void Write(LogLevel level, const char* prefix, const std::string& message) {
  if (!LogEnabled(level)) return;
  const std::string line = prefix + Shown(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void SetLogLevel(LogLevel level) { Level().store(level, std::memory_order_relaxed); }
bool LogEnabled(LogLevel level) { return level <= Level().load(std::memory_order_relaxed); }

void LogWarning(const std::string& message) {
  Write(LogLevel::kWarning, "moewe: warning: ", message);
}
void LogInfo(const std::string& message) { Write(LogLevel::kInfo, "moewe: ", message); }
void LogDebug(const std::string& message) { Write(LogLevel::kDebug, "moewe: debug: ", message); }

}  // namespace moewe
