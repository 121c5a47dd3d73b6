#include "examples/common/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

namespace stretto::examples {
namespace {

// Signal handlers may call few functions, so they pass each signal to a thread through a pipe.
// They announce the stop themselves: its line then precedes whatever the program prints about it.
std::atomic<int> stop_signal{0};
std::atomic<bool> announced{false}, terminal{false};
std::atomic<bool> ending{false};
std::atomic<int> pipe_end{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// The thread that handles signals outlives main(), so the following objects are never destroyed.
std::mutex& words_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::string& words() {  // `last_words` of end_on_signal()
  static auto* text = new std::string;
  return *text;
}
std::timed_mutex& files() {
  static auto* mutex = new std::timed_mutex;
  return *mutex;
}

void say(int descriptor, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(descriptor, text.data(), text.size());
}

void note(int signal) {
  if (!announced.exchange(true)) {
    if (terminal.load()) say(STDERR_FILENO, "\n");
    say(STDERR_FILENO, "Stopping after this step; Ctrl-C now stops at once.\n");
  }
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
}

extern "C" void handle_signal(int signal) {
  const int error = errno;
  if (!ending.load()) note(signal);
  const auto byte = uint8_t(signal);
  [[maybe_unused]] const ssize_t written = ::write(pipe_end.load(), &byte, 1);
  errno = error;
}

[[noreturn]] void end(int signal) {
  const std::unique_lock<std::timed_mutex> lock(files(), std::chrono::milliseconds(800));
  ::_exit(128 + signal);
}

[[noreturn]] void end_with_words(int signal) {
  words_mutex().lock();
  say(STDOUT_FILENO, words());
  end(signal);
}

void* answer(void* pipe) {
  const int from = int(reinterpret_cast<std::intptr_t>(pipe));
  int interrupts = 0;
  for (unsigned char signal = 0;;) {
    const ssize_t count = ::read(from, &signal, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1) return nullptr;
    if (ending.load()) end_with_words(signal);
    note(signal);
    if (signal == SIGINT && ++interrupts > 1) end(signal);
  }
}

[[noreturn]] void give_up(int error) {
  throw std::system_error(error, std::generic_category(), "cannot answer signals");
}

void start_answering() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) give_up(errno);
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&attributes, size_t(256) << 10);
  pthread_t thread;
  void* from = reinterpret_cast<void*>(static_cast<std::intptr_t>(ends[0]));
  const int error = ::pthread_create(&thread, &attributes, answer, from);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    give_up(error);
  }
  pipe_end.store(ends[1]);
}

}  // namespace

void install_interrupt_handlers() {
  terminal.store(::isatty(STDERR_FILENO) == 1);
  if (pipe_end.load() < 0) start_answering();
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0) give_up(errno);
    if (signal != SIGTERM && before.sa_handler == SIG_IGN) continue;
    if (sigaction(signal, &action, nullptr) != 0) give_up(errno);
  }
}

void ask_on_signal() { ending.store(false); }

void end_on_signal(std::string last_words) {
  last_words += '\n';
  {
    const std::lock_guard lock(words_mutex());
    words().swap(last_words);
  }
  ending.store(true);
  if (interrupted()) end_with_words(stop_signal.load());
}

void ignore_signals() {
  if (pipe_end.load() < 0) return;  // no handlers
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_IGN);
}

std::unique_lock<std::timed_mutex> finish_files() {
  return std::unique_lock<std::timed_mutex>(files());
}

bool interrupted() { return stop_signal.load() != 0; }

int interrupted_exit_code() { return 128 + stop_signal.load(); }

void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace stretto::examples
