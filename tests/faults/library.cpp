#include "tests/faults/library.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>

#include "core/error.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "tests/faults/fault.h"
#include "tests/faults/training.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {
namespace {

constexpr unsigned most_seconds = 60;  // limit for one attempt, which takes milliseconds

constexpr int most_complaints = 20;  // stops after this number

int complaints = 0;

void expect(bool good, const std::string& where, const char* what) {
  if (good) return;
  ++complaints;
  std::printf("%s: %s\n", where.c_str(), what);
}

enum class Outcome { done, out_of_memory, error, other };

Outcome attempt(const std::function<void()>& act) {
  try {
    act();
    return Outcome::done;
  } catch (const OutOfMemory&) {
    return Outcome::out_of_memory;
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_memory;
  } catch (const Error&) {
    return Outcome::error;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return Outcome::other;
  }
}

struct Phase {
  std::string name;
  std::function<void()> act;
  std::function<void()> reset;           // restores the state before act()
  std::function<void()> clean;           // what a caller does after a failure
  std::function<void(bool done)> check;  // checks the state, also after a second act()
};

// Repeats act() with a failing k-th request, k = 1, 2, …; then, for fewer k, with all requests from
// the k-th on failing.
void every_request(const Phase& phase, long step_once) {
  for (const char* how : {"once", "always"}) {
    const long step = how[0] == 'o' ? step_once : 7 * step_once;
    long k = 1;
    for (bool fired = true; fired && complaints < most_complaints; k += step) {
      ::alarm(most_seconds);
      phase.reset();
      release_cached_memory();
      const int64_t live = memory_stats().live;
      Outcome outcome;
      {
        Fault fault("memory", k, how);
        outcome = attempt(phase.act);
        fired = fault.end();
      }
      phase.clean();
      const std::string where = str(phase.name, ", request ", k, " ", how);
      const int before = complaints;
      expect(outcome == Outcome::done || outcome == Outcome::out_of_memory, where,
             "the error is not out of memory");
      if (outcome != Outcome::done) expect(memory_stats().live == live, where, "memory has leaked");
      phase.check(outcome == Outcome::done);
      if (complaints > before) std::printf("  (%s)\n", where.c_str());
    }
    std::printf("%s: %ld requests, %s\n", phase.name.c_str(), k, how);
  }
}

void fail_memory(bool wide, long step) {
  const TempDir folder;
  const std::string path = folder.file("checkpoint");
  std::optional<TinyTraining> training;
  const auto make = [&] {
    manual_seed(5);
    training.emplace(wide);
  };
  make();
  const Snapshot made(*training);
  training->step();
  const Snapshot first(*training);
  training->step();
  const Snapshot second(*training);
  training->save(path);
  const std::string bytes = read_file(path);

  every_request({.name = "making a model",
                 .act = make,
                 .reset = [&] { training.reset(); },
                 .clean = [] {},
                 .check =
                     [&](bool done) {
                       if (!done) make();
                       expect(Snapshot(*training) == made, "made", "other weights");
                     }},
                step);
  const auto steps = [&](const char* name, const Snapshot& from, const Snapshot& to) {
    every_request({.name = name,
                   .act = [&] { training->step(); },
                   .reset = [&] { from.restore(*training); },
                   .clean = [&] { training->optimizer.zero_grad(); },
                   .check =
                       [&](bool done) {
                         if (!done) {
                           set_random_state(from.random());
                           expect(Snapshot(*training) == from, name, "part of the step was done");
                           training->step();
                         }
                         expect(Snapshot(*training) == to, name, "other weights");
                       }},
                  step);
  };
  steps("a first step", made, first);
  steps("another step", first, second);
  second.restore(*training);
  every_request({.name = "saving",
                 .act = [&] { training->save(path); },
                 .reset = [&] { write_file(path, "old"); },
                 .clean = [] {},
                 .check =
                     [&](bool done) {
                       expect(read_file(path) == (done ? bytes : "old"), "saved",
                              "the file has other bytes");
                       expect(folder.entries() == 1, "saved", "a temporary file remains");
                     }},
                step);
  training->save(path);
  every_request({.name = "loading",
                 .act = [&] { training->load(path); },
                 .reset = [&] { made.restore(*training); },
                 .clean = [] {},
                 .check =
                     [&](bool done) {
                       expect(Snapshot(*training) == (done ? second : made), "loaded",
                              "other weights");
                     }},
                step);
}

// Waits for a child and returns its exit code, or -1 with a complaint if a signal ended it.
int wait_for(pid_t child, const std::string& where) {
  int status = 0;
  while (::waitpid(child, &status, 0) != child) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  expect(false, where, WTERMSIG(status) == SIGALRM ? "hangs" : "was ended by a signal");
  return -1;
}

int in_child(const std::string& where, const std::function<int()>& act) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(most_seconds);
    int code = 2;
    const Outcome outcome = attempt([&] { code = act(); });
    std::fflush(stdout);
    ::_exit(outcome == Outcome::done ? code : 2);
  }
  return wait_for(child, where);
}

}  // namespace

int fail_memory() {
  set_num_threads(1);
  fail_memory(false, 1);
  set_num_threads(2);
  fail_memory(true, 17);
  return complaints;
}

int fail_threads() {
  for (const char* how : {"once", "always"})
    for (long k = 1; k <= 3; ++k) {
      const std::string where = str("thread ", k, " ", how);
      const int code = in_child(where, [&] {
        set_num_threads(4);
        Fault fault("thread", k, how);
        int wrong = 0;
        for (int64_t job = 0; job < 3000; ++job) {  // a failed thread is requested again later
          std::atomic<int64_t> sum{0};
          parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
          wrong += sum != 4950;
        }
        return wrong > 0 ? 2 : fault.end() ? 0 : 3;
      });
      expect(code == 0, where, code == 3 ? "no thread was requested" : "wrong sums");
    }
  return complaints;
}

int fail_files() {
  set_num_threads(1);
  const TempDir folder;
  const std::string path = folder.file("checkpoint");
  manual_seed(5);
  TinyTraining training(false);
  training.save(path);
  const std::string old_bytes = read_file(path);
  const Snapshot old_state(training);
  training.step();
  training.save(path);
  const std::string bytes = read_file(path);
  const Snapshot state(training);
  struct Way {
    const char *kind, *how;
    bool survived;
  };
  int faults = 0;
  const auto every_call = [&](const Way& way, const std::function<void()>& act,
                              const std::function<void(bool, const std::string&)>& check) {
    bool fired = true;
    for (long k = 1; fired && complaints < most_complaints; ++k) {
      ::alarm(most_seconds);
      Outcome outcome;
      {
        Fault fault(way.kind, k, way.how);
        outcome = attempt(act);
        fired = fault.end();
      }
      faults += fired;
      const std::string where = str(way.kind, " ", k, ": ", way.how);
      expect(outcome == Outcome::done || outcome == Outcome::error, where, "does not throw Error");
      if (way.survived || !fired)
        expect(outcome == Outcome::done, where, "the call is not retried");
      check(outcome == Outcome::done, where);
    }
  };
  for (const Way& way :
       {Way{"write", "ENOSPC", false}, Way{"write", "full", false}, Way{"write", "EIO", false},
        Way{"write", "EINTR", true}, Way{"write", "short", true}, Way{"fsync", "EIO", false},
        Way{"fsync", "ENOSPC", false}, Way{"fsync", "EINTR", true}, Way{"rename", "EIO", false},
        Way{"rename", "ENOSPC", false}, Way{"rename", "EACCES", false},
        Way{"open", "EMFILE", false}, Way{"open", "EACCES", false}, Way{"open", "EINTR", true}}) {
    write_file(path, old_bytes);
    every_call(
        way, [&] { training.save(path); },
        [&](bool done, const std::string& where) {
          const std::string now = read_file(path);
          // The directory is synced last, after the new file was renamed.
          const bool last = where.starts_with("fsync 2") && now == bytes;
          expect(now == (done || last ? bytes : old_bytes), where, "the file has other bytes");
          expect(folder.entries() == 1, where, "a temporary file remains");
          write_file(path, old_bytes);
        });
  }
  write_file(path, bytes);
  for (const Way& way :
       {Way{"open", "EMFILE", false}, Way{"open", "EINTR", true}, Way{"read", "EIO", false},
        Way{"read", "EINTR", true}, Way{"read", "short", true}}) {
    every_call(
        way,
        [&] {
          old_state.restore(training);
          training.load(path);
        },
        [&](bool done, const std::string& where) {
          expect(Snapshot(training) == (done ? state : old_state), where, "other weights");
        });
  }
  std::printf("%d calls for files failed\n", faults);
  return complaints;
}

int fail_address_space() {
  auto start = [](rlim_t limit, const char* what) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::alarm(most_seconds);
    ::setenv("STRETTO_NUM_THREADS", "3", 1);
    const rlimit bytes{limit * 1'000'000, limit * 1'000'000};
    ::setrlimit(RLIMIT_AS, &bytes);
    ::execl("/proc/self/exe", "faults", what, nullptr);
    ::_exit(127);
  };
  rlim_t most = 0;  // 900 MB more than loading the program and its libraries takes
  for (rlim_t limit = 100; most == 0 || limit <= most; limit += 25) {
    const std::string where = str(int64_t(limit), " MB of address space");
    if (most == 0) {  // below this, loading fails before main, in any way
      int status = 0;
      ::waitpid(start(limit, "load"), &status, 0);
      if (status != 0 && limit < 20'000) continue;
      most = limit + 900;
    }
    const int code = wait_for(start(limit, "train"), where);
    expect(code == 0 || code == 1, where, "does not end cleanly");
    if (limit + 25 > most) expect(code == 0, where, "this should be enough");
    std::printf("%s: %s\n", where.c_str(), code == 0 ? "trains" : "reports an error");
  }
  return complaints;
}

int train_or_complain() {
  try {
    manual_seed(5);
    TinyTraining training(true);
    for (int i = 0; i < 3; ++i) training.step();
    return 0;
  } catch (const std::exception& e) {
    std::printf("  %s\n", e.what());
    return 1;
  }
}

}  // namespace stretto::testing
