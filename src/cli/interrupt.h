// Ctrl-C and SIGTERM as a flag, for verbs that have something to finish or to keep.
#ifndef MOEWE_CLI_INTERRUPT_H_
#define MOEWE_CLI_INTERRUPT_H_

#include <atomic>

namespace moewe::cli {

// From now on SIGINT and SIGTERM set the returned flag and do nothing else. The flag lives as long
// as the process; whoever sees it set throws Error{kInterrupted} once its work is in order.
const std::atomic<bool>& CatchInterrupts();

}  // namespace moewe::cli

#endif  // MOEWE_CLI_INTERRUPT_H_
