// Signals that stop a run after its step. Each case is a child process, which a signal may end.
#include "nn/training/stop_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

struct End {
  int code, signal;  // one of them is 0
  std::string text;  // on standard error
};

End in_child(const std::function<int()>& f) {
  const TempDir dir;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)!std::freopen(dir.file("text").c_str(), "w", stderr);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::signal(s, SIG_DFL);  // not the framework's
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          read_file(dir.file("text"))};
}

const std::string line = "Stopping after this step; Ctrl-C now stops at once.\n";

}  // namespace

TEST_CASE("A signal stops a run after its step, with a checkpoint", "[signals]") {
  if (default_device().is_cuda()) STRETTO_SKIP("a child process cannot use the GPU of its parent");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TempDir dir;
    const End end = in_child([&] {
      nn::Linear net({.in = 2, .out = 1});
      nn::SGD optimizer(net.parameters(), {.lr = 0.1});
      nn::Trainer trainer(
          net, optimizer,
          {.steps = 1000, .folder = dir.file("x"), .stop = nn::stop_on_signals(), .quiet = true});
      const bool done = trainer.run([&](int64_t i) {
        if (i == 3) ::raise(signal);
        return sum(net(ones({1, 2})));
      });
      return done || nn::stop_signal() != signal ? 1 : nn::stop_exit_code();
    });
    CHECK(end.code == 128 + signal);
    CHECK(end.text == line);
    CHECK(nn::load_training_state(dir.file("x/checkpoint.safetensors")).step == 4);
  }
}

TEST_CASE("A second signal ends the process at once", "[signals]") {
  const End end = in_child([] {
    const auto stop = nn::stop_on_signals();
    ::raise(SIGTERM);
    if (!stop()) return 1;
    ::raise(SIGINT);
    return 2;
  });
  CHECK(end.signal == SIGINT);
  CHECK(end.text == line);
}

TEST_CASE("Signals have their previous handlers when no stop function exists", "[signals]") {
  const End end = in_child([] {
    {
      const auto stop = nn::stop_on_signals(), again = nn::stop_on_signals();
      if (stop() || again() || nn::stop_exit_code() != 0) return 1;
    }
    ::raise(SIGTERM);
    return 2;
  });
  CHECK(end.signal == SIGTERM);
  CHECK(end.text.empty());
}

TEST_CASE("A signal that was ignored stays ignored", "[signals]") {
  const End end = in_child([] {
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
    const auto stop = nn::stop_on_signals();
    ::raise(SIGINT);
    ::raise(SIGHUP);
    return stop() ? 1 : 7;
  });
  CHECK(end.code == 7);
  CHECK(end.text.empty());
}
