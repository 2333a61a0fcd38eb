// Ctrl-C and SIGTERM as a flag, for verbs that have something to finish or to keep.
#ifndef MOEWE_CLI_INTERRUPT_H_
#define MOEWE_CLI_INTERRUPT_H_

#include <atomic>

namespace moewe::cli {

// From now on SIGINT and SIGTERM set the returned flag and do nothing else. The flag lives as long
// as the process; whoever sees it set throws Error{kInterrupted} once its work is in order.
const std::atomic<bool>& CatchInterrupts();

// From now on SIGINT sets the returned flag and does nothing else; whoever waits for it clears it.
// SIGTERM still ends the process.
std::atomic<bool>& CatchCtrlC();

}  // namespace moewe::cli

#endif  // MOEWE_CLI_INTERRUPT_H_
