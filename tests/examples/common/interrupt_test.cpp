// Signals that request a stop, and signals that end a program.
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

/// Runs `body` in a child process, whose exit code is its result. Returns the wait status.
template <typename Body>
int status_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("a signal requests a stop, and a second interrupt ends the program",
          "[examples][interrupt]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([&] {
      ::signal(signal, SIG_DFL);  // it may be ignored because of nohup
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

TEST_CASE("a signal ends a process that has nothing to finish", "[examples][interrupt]") {
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
  // A signal that arrived earlier and was not handled yet.
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

// A signal that arrives after static objects are destroyed.
bool signal_at_the_end = false;
[[gnu::constructor(101)]] void first_of_all() {
  std::atexit([] {  // the last exit handler to run
    if (!signal_at_the_end) return;
    ::raise(SIGTERM);
    for (;;) ::pause();
  });
}

TEST_CASE("the message of end_on_signal is printed even after main has returned",
          "[examples][interrupt]") {
  const std::string words = "To resume, repeat the command with --resume checkpoint.safetensors";
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::cout.flush(), std::fflush(stdout);  // else the child would write the buffers again
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
