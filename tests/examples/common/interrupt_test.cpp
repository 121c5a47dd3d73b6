// Signals that ask to stop, and those that end a program.
#include "examples/common/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/support/catch.h"

namespace {

using namespace stretto::examples;  // NOLINT

/// The wait status of a child process that runs `body`, whose result is its exit code.
template <typename Body>
int status_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("signals ask to stop, and a second interrupt stops", "[examples][interrupt]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([&] {
      ::signal(signal, SIG_DFL);  // nohup may have left it ignored
      install_interrupt_handlers();
      if (interrupted()) return 1;
      ::raise(signal);
      return interrupted() ? interrupted_exit_code() : 2;
    });
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + signal);
  }
  const int twice = status_of([] {
    ::signal(SIGINT, SIG_DFL);
    install_interrupt_handlers();
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    ::raise(SIGINT);
    if (!interrupted()) return 1;
    ::raise(SIGINT);
    for (;;) ::pause();
  });
  REQUIRE(WIFEXITED(twice));
  CHECK(WEXITSTATUS(twice) == 130);
}

TEST_CASE("a signal ends the process where nothing is to be finished", "[examples][interrupt]") {
  const int ended = status_of([] {
    ::signal(SIGHUP, SIG_DFL);
    install_interrupt_handlers();
    end_on_signal("The end.");
    ::raise(SIGHUP);
    for (;;) ::pause();
    return 0;
  });
  REQUIRE(WIFEXITED(ended));
  CHECK(WEXITSTATUS(ended) == 128 + SIGHUP);
  // One that came before and was not heeded yet.
  const int late = status_of([] {
    install_interrupt_handlers();
    ::raise(SIGTERM);
    end_on_signal("The end.");
    return 0;
  });
  REQUIRE(WIFEXITED(late));
  CHECK(WEXITSTATUS(late) == 128 + SIGTERM);
}

TEST_CASE("signals that were ignored stay ignored", "[examples][interrupt]") {
  for (const int signal : {SIGINT, SIGHUP}) {
    const int status = status_of([&] {
      ::signal(signal, SIG_IGN);
      install_interrupt_handlers();
      ::raise(signal);
      return interrupted() ? 1 : 0;
    });
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

// What a process prints that gets a signal when everything static is destroyed.
bool signal_at_the_end = false;
[[gnu::constructor(101)]] void first_of_all() {
  std::atexit([] {  // the last function of all that run at the end
    if (!signal_at_the_end) return;
    ::raise(SIGTERM);
    for (;;) ::pause();
  });
}

TEST_CASE("last words outlive main", "[examples][interrupt]") {
  const std::string words = "To resume, repeat the command with --resume checkpoint.safetensors";
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::cout.flush(), std::fflush(stdout);  // what is still to be written would be the child's too
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    install_interrupt_handlers();
    end_on_signal(words);
    signal_at_the_end = true;
    std::exit(0);
  }
  ::close(ends[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  char text[200] = {};
  const ssize_t count = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  REQUIRE(count >= 0);
  CHECK(std::string(text, size_t(count)) == words + "\n");
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM));
}

}  // namespace
