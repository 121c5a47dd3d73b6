#include "nn/training/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string_view>

namespace stretto::nn {
namespace {

constexpr std::array<int, 3> stopping{SIGINT, SIGTERM, SIGHUP};

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Uses only async-signal-safe functions (signal-safety(7)), as do the handlers below.
void print(std::string_view line) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

extern "C" void stop_after_step(int signal) {
  const int error = errno;
  int none = 0;
  if (received.compare_exchange_strong(none, signal)) {
    if (::isatty(STDERR_FILENO)) print("\n");  // below a progress line
    print("Stopping after this step; Ctrl-C now stops at once.\n");
  } else {
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigemptyset(&usual.sa_mask);
    ::sigaction(signal, &usual, nullptr);
    ::raise(signal);
  }
  errno = error;
}

class Handlers {
 public:
  Handlers() {
    struct sigaction action {};
    action.sa_handler = stop_after_step;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < stopping.size(); ++i) {
      ::sigaction(stopping[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(stopping[i], &action, nullptr);
    }
  }
  ~Handlers() {
    for (size_t i = 0; i < stopping.size(); ++i) ::sigaction(stopping[i], &before_[i], nullptr);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  std::array<struct sigaction, stopping.size()> before_{};
};

}  // namespace

std::function<bool()> stop_on_signals() {
  static std::mutex mutex;
  // Shared, so that handlers are installed once; outlives all other statics.
  static auto& installed = *new std::weak_ptr<Handlers>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Handlers> handlers = installed.lock();
  if (!handlers) installed = handlers = std::make_shared<Handlers>();
  return [handlers] { return stop_signal() != 0; };
}

int stop_signal() { return received.load(); }

int stop_exit_code() { return received.load() == 0 ? 0 : 128 + received.load(); }

}  // namespace stretto::nn
