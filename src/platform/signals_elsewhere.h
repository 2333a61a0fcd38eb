// Threads that leave signals to the program's own.
#ifndef MOEWE_PLATFORM_SIGNALS_ELSEWHERE_H_
#define MOEWE_PLATFORM_SIGNALS_ELSEWHERE_H_

#include <pthread.h>

#include <csignal>

namespace moewe {

// While it lives, threads that are started by this one get no signals: one that took Ctrl-C would
// leave a prompt waiting. But for faults of their own: a blocked SIGBUS would end the process
// before the handler of mapped files sees it.
class SignalsElsewhere {
 public:
  SignalsElsewhere() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  SignalsElsewhere& operator=(const SignalsElsewhere&) = delete;

 private:
  sigset_t before_;
};

}  // namespace moewe

#endif  // MOEWE_PLATFORM_SIGNALS_ELSEWHERE_H_
