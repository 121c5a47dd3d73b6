#include "examples/common/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

namespace stretto::examples {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> interrupt_count{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void handle_signal(int signal) {
  stop_requested.store(true);
  if (signal == SIGINT && interrupt_count.fetch_add(1) > 0) ::_exit(130);
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) {
    if (sigaction(signal, &action, nullptr) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot install a signal handler");
    }
  }
}

bool interrupted() { return stop_requested.load(); }

void check_interrupt() {
  if (interrupted()) throw Interrupted();
}

}  // namespace stretto::examples
