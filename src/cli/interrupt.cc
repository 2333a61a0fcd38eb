#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>

#include <cerrno>

namespace moewe::cli {
namespace {

std::atomic<bool> interrupted_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may only store to such

void Catch(int signal) {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted_flag = true; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read that waits for a person or a pipe must end
  sigaction(signal, &action, nullptr);
}

}  // namespace

std::atomic<bool>& Interrupted() { return interrupted_flag; }

const std::atomic<bool>& CatchInterrupts() {
  Catch(SIGINT);
  Catch(SIGTERM);
  return interrupted_flag;
}

std::atomic<bool>& CatchCtrlC() {
  Catch(SIGINT);
  return interrupted_flag;
}

bool WaitForInput(int fd, const std::atomic<bool>& interrupted) {
  // The signals are let in only while ppoll waits, so none can slip in between looking and waiting.
  sigset_t ours;
  sigset_t old;
  sigemptyset(&ours);
  sigaddset(&ours, SIGINT);
  sigaddset(&ours, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ours, &old);
  while (!interrupted) {
    pollfd input{fd, POLLIN, 0};
    if (ppoll(&input, 1, nullptr, &old) >= 0 || errno != EINTR) break;
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return !interrupted;
}

}  // namespace moewe::cli
