// A running moewe that a test talks to: over pipes, or as on a terminal.
#ifndef MOEWE_TESTS_PROCESS_H_
#define MOEWE_TESTS_PROCESS_H_

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "paths.h"

namespace moewe {

class Process {
 public:
  enum class Via { kPipes, kTerminal };

  // Standard error goes nowhere with pipes, and to the terminal with one.
  Process(const std::vector<std::string>& arguments, Via via) {
    std::vector<std::string> words = {paths::Program()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (via == Via::kTerminal) {
      pid_ = forkpty(&out_, nullptr, nullptr, nullptr);
      if (pid_ == 0) {
        // A terminal drops what nobody has read yet once Ctrl-C's signal is sent: also what a quick
        // program has written in answer to it.
        termios terminal;
        tcgetattr(STDIN_FILENO, &terminal);
        terminal.c_lflag |= NOFLSH;
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
        Become(argv);
      }
      in_ = out_;
    } else {
      int to[2], from[2];
      if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
        throw std::runtime_error("no pipe");
      }
      pid_ = fork();
      if (pid_ == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        Become(argv);
      }
      close(to[0]);
      close(from[1]);
      in_ = to[1];
      out_ = from[0];
    }
    if (pid_ < 0) throw std::runtime_error("cannot start a process");
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    CloseInput();
    if (out_ >= 0) close(out_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Write(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = write(in_, text.data() + done, text.size() - done);
      if (n <= 0) throw std::runtime_error("cannot write");
      done += static_cast<size_t>(n);
    }
  }
  void CloseInput() {
    if (in_ >= 0 && in_ != out_) close(in_);
    in_ = -1;
  }
  void Interrupt() { kill(pid_, SIGINT); }
  void Kill() { kill(pid_, SIGKILL); }

  // What comes until `text` is among it, or the end, or a minute has passed; it is taken out.
  std::string ReadUntil(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    size_t at;
    while ((at = pending_.find(text)) == std::string::npos && Fill(deadline)) continue;
    const size_t n = at == std::string::npos ? pending_.size() : at + text.size();
    std::string taken = pending_.substr(0, n);
    pending_.erase(0, n);
    return taken;
  }
  std::string ReadAll() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (Fill(deadline)) continue;
    return std::exchange(pending_, "");
  }

  // Exit code; -1 if a signal ended it.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] static void Become(const std::vector<char*>& argv) {
    execv(argv[0], argv.data());
    _exit(127);
  }

  bool Fill(std::chrono::steady_clock::time_point deadline) {
    using std::chrono::milliseconds;
    const auto left =
        std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd output{out_, POLLIN, 0};
    if (left.count() <= 0 || poll(&output, 1, static_cast<int>(left.count())) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(out_, buffer, sizeof buffer);
    if (n <= 0) return false;  // a terminal whose program is gone reads as an error
    pending_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string pending_;
};

}  // namespace moewe

#endif  // MOEWE_TESTS_PROCESS_H_
