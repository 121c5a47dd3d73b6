// The test program's main. Exit status: Catch2's own, except 77 when every test that ran was
// skipped, and 1 when no test matched. The last line is the tally that tests/run.sh adds up.

#define CATCH_CONFIG_RUNNER
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <optional>

#include "core/device.h"
#include "tests/support/catch.h"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

namespace {

constexpr int exit_skipped = 77;  // what ctest's SKIP_RETURN_CODE expects

struct Tally {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
} tally;

std::string test_name;
bool test_skipped = false;

// Passes the name of the running test to the PTX interpreter (tests/cuda/ptx), if that
// replaces a GPU.
template <class... T>
void tell_interpreter(const char* function, T... what) {
  if (void* f = dlsym(RTLD_DEFAULT, function)) reinterpret_cast<void (*)(T...)>(f)(what...);
}

struct Listener : ListenerBase {
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    test_name = info.name;
    test_skipped = false;
    tell_interpreter("ptx_test_begins", test_name.c_str());
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    tell_interpreter("ptx_test_ends", stats.totals.testCases.failed > 0);
    if (stats.totals.testCases.failed > 0) {
      ++tally.failed;
    } else if (test_skipped) {
      ++tally.skipped;
    } else {
      ++tally.passed;
    }
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

void stretto::testing::skip(const std::string& reason) {
  if (!test_skipped) std::cout << "SKIPPED: " << test_name << ": " << reason << std::endl;
  test_skipped = true;
}

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int error = session.applyCommandLine(argc, argv)) return error;
  const auto& options = session.configData();
  const bool only_lists = options.showHelp || options.libIdentify || options.listTests ||
                          options.listTags || options.listReporters;
  // STRETTO_TEST_DEVICE=cuda creates tensors and models of tests on the GPU unless they
  // name a device.
  std::optional<stretto::DefaultDevice> default_device;
  if (const char* device = std::getenv("STRETTO_TEST_DEVICE"); device && !only_lists) {
    default_device.emplace(device);
  }
  const int status = session.run();
  if (only_lists) return status;

  std::cout << "tally: " << tally.passed << " passed, " << tally.failed << " failed, "
            << tally.skipped << " skipped" << std::endl;
  if (status != 0) return status;
  if (tally.passed + tally.skipped == 0) {
    std::cerr << "No test matched.\n";
    return 1;
  }
  return tally.passed == 0 ? exit_skipped : 0;
}
