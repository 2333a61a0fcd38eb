// Ctrl-C and SIGTERM as a flag, for verbs that have something to finish or to keep, and input that
// can be waited for without missing them.
#ifndef MOEWE_CLI_INTERRUPT_H_
#define MOEWE_CLI_INTERRUPT_H_

#include <atomic>

namespace moewe::cli {

// The flag that the two below let a signal set; false until then. It lives as long as the process.
std::atomic<bool>& Interrupted();

// From now on SIGINT and SIGTERM set the flag, end a call that waits (EINTR) and do nothing else.
// Whoever sees the flag set throws Error{kInterrupted} once its work is in order.
const std::atomic<bool>& CatchInterrupts();

// From now on SIGINT does so; whoever waits for it clears the flag. SIGTERM still ends the process.
std::atomic<bool>& CatchCtrlC();

// Waits until `fd` has something to read, its end included; false if `interrupted` is set before
// that. No signal is missed between looking at the flag and waiting. Errors are left to read().
bool WaitForInput(int fd, const std::atomic<bool>& interrupted);

}  // namespace moewe::cli

#endif  // MOEWE_CLI_INTERRUPT_H_
