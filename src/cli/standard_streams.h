// stdin, stdout and stderr as the shell left them: closed, full, or a pipe that nobody reads.
#ifndef MOEWE_CLI_STANDARD_STREAMS_H_
#define MOEWE_CLI_STANDARD_STREAMS_H_

namespace moewe::cli {

// Takes the numbers of standard streams that the caller closed, so that no file that is opened
// later gets one and receives output that was meant for a terminal. Such a stream can't be read or
// written; stderr swallows. To be called first.
void HoldStandardStreams();

// Flushes stdout. Throws Error{kNoSpace, kIo} if anything written to it was lost.
void FinishStdout();

}  // namespace moewe::cli

#endif  // MOEWE_CLI_STANDARD_STREAMS_H_
