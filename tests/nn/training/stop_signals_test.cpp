// Signals that stop a run after its step. Each case is a child process, which a signal may end.
#include "nn/training/stop_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
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
  int code, signal;         // one of them is 0
  std::string text, words;  // on standard error and output
};

End in_child(const std::function<int()>& f) {
  const TempDir dir;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    (void)!std::freopen(dir.file("text").c_str(), "w", stderr);
    (void)!std::freopen(dir.file("words").c_str(), "w", stdout);
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::signal(s, SIG_DFL);  // not the framework's
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 0, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          read_file(dir.file("text")), read_file(dir.file("words"))};
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

TEST_CASE("After a first signal a SIGINT ends the process at once", "[signals]") {
  const End end = in_child([] {
    const auto stop = nn::stop_on_signals();
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    ::raise(SIGHUP);
    if (!stop() || nn::stop_signal() != SIGTERM) return 1;
    ::raise(SIGINT);
    return 2;
  });
  CHECK(end.signal == SIGINT);
  CHECK(end.text == line);
}

TEST_CASE("After end_on_signal a signal ends the process with its last words", "[signals]") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const End end = in_child([&] {
      nn::end_on_signal("Not these.");
      if (nn::stop_on_signals()()) return 1;
      nn::end_on_signal("The end.");
      ::raise(signal);
      return 2;
    });
    CHECK(end.code == 128 + signal);
    CHECK(end.text.empty());
    CHECK(end.words == "The end.\n");
  }
  const End late = in_child([] {
    const auto stop = nn::stop_on_signals();
    ::raise(SIGTERM);
    nn::end_on_signal("The end.");
    return 1;
  });
  CHECK(late.code == 128 + SIGTERM);
  CHECK(late.text == line);
  CHECK(late.words == "The end.\n");
}

// A signal that arrives after static objects are destroyed.
bool signal_at_the_end = false;
[[gnu::constructor(101)]] void first_of_all() {
  std::atexit([] {  // the last exit handler to run
    if (signal_at_the_end) ::raise(SIGTERM);
  });
}

TEST_CASE("The last words are printed even after main has returned", "[signals]") {
  const End end = in_child([]() -> int {
    nn::end_on_signal("To resume, repeat the command with --resume checkpoint.safetensors");
    signal_at_the_end = true;
    std::exit(0);
  });
  CHECK(end.code == 128 + SIGTERM);
  CHECK(end.words == "To resume, repeat the command with --resume checkpoint.safetensors\n");
}

TEST_CASE("A signal that ends the process waits for DelaySignals, the next one does not",
          "[signals]") {
  for (const bool twice : {false, true}) {
    const End end = in_child([&] {
      nn::end_on_signal("The end.");
      const nn::DelaySignals outer;
      {
        const nn::DelaySignals inner;
        ::raise(SIGTERM);
      }
      std::fputs("finished\n", stderr);
      std::fflush(stderr);
      if (twice) ::raise(SIGHUP);
      std::fputs("once\n", stderr);
      std::fflush(stderr);
      return 1;
    });
    CHECK(end.code == 128 + (twice ? SIGHUP : SIGTERM));
    CHECK(end.text == (twice ? "finished\n" : "finished\nonce\n"));
    CHECK(end.words == "The end.\n");
  }
  const End second = in_child([] {
    const auto stop = nn::stop_on_signals();
    {
      const nn::DelaySignals delay;
      ::raise(SIGTERM);
      ::raise(SIGINT);
      std::fputs("finished\n", stderr);
      std::fflush(stderr);
    }
    return 1;
  });
  CHECK(second.signal == SIGINT);
  CHECK(second.text == line + "finished\n");
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
