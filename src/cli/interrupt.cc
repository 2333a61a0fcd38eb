#include "cli/interrupt.h"

#include <csignal>

namespace moewe::cli {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may only store to such

}  // namespace

const std::atomic<bool>& CatchInterrupts() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { interrupted = true; });
  return interrupted;
}

std::atomic<bool>& CatchCtrlC() {
  std::signal(SIGINT, [](int) { interrupted = true; });
  return interrupted;
}

}  // namespace moewe::cli
