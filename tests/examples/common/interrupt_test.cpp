// Signals that ask to stop, and those that end a program.
#include "examples/common/interrupt.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
