#include "nn/training/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>

namespace stretto::nn {
namespace {

constexpr std::array<int, 3> stopping{SIGINT, SIGTERM, SIGHUP};

// Shared with the handler, which can interrupt any thread.
std::atomic<int> received{0};
std::atomic<const std::string*> words{nullptr};  // of end_on_signal(); null: signals stop a run
std::atomic<int> delays{0};  // 2 · objects of DelaySignals; + 1: the process is ending
std::atomic<int> last{0};    // the signal that ends the process
static_assert(std::atomic<int>::is_always_lock_free);

// Uses only async-signal-safe functions (signal-safety(7)), as do the handler and end().
void print(int to, std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(to, text.data(), text.size());
}

void end() {
  if (const std::string* text = words.load()) {
    print(STDOUT_FILENO, *text);
    ::_exit(128 + last.load());
  }
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigemptyset(&usual.sa_mask);
  ::sigaction(last.load(), &usual, nullptr);
  ::raise(last.load());
}

void end_after_delays(int signal) {
  last.store(signal);
  if (const int before = delays.fetch_or(1); before == 0 || (before > 1 && before % 2 == 1)) end();
}

extern "C" void handle_stop(int signal) {
  const int error = errno;
  int none = 0;
  const bool ends = words.load() != nullptr;
  if (!ends && received.compare_exchange_strong(none, signal)) {
    if (::isatty(STDERR_FILENO)) print(STDERR_FILENO, "\n");  // below a progress line
    print(STDERR_FILENO, "Stopping after this step; Ctrl-C now stops at once.\n");
  } else if (ends || signal == SIGINT) {
    end_after_delays(signal);
  }
  errno = error;
}

class Handlers {
 public:
  Handlers() {
    struct sigaction action {};
    action.sa_handler = handle_stop;
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

 private:
  std::array<struct sigaction, stopping.size()> before_{};
};

// Installs the handlers once; they outlive all other statics.
std::shared_ptr<Handlers> install() {
  static std::mutex mutex;
  static auto& installed = *new std::weak_ptr<Handlers>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Handlers> handlers = installed.lock();
  if (!handlers) installed = handlers = std::make_shared<Handlers>();
  return handlers;
}

}  // namespace

std::function<bool()> stop_on_signals() {
  words.store(nullptr);
  return [handlers = install()] { return stop_signal() != 0; };
}

void end_on_signal(const std::string& last_words) {
  [[maybe_unused]] static const auto& handlers = *new std::shared_ptr<Handlers>(install());
  static auto& all = *new std::deque<std::string>;  // a handler may print an earlier one
  words.store(&all.emplace_back(last_words + "\n"));
  if (stop_signal() != 0) end_after_delays(stop_signal());
}

DelaySignals::DelaySignals() { delays.fetch_add(2); }
DelaySignals::~DelaySignals() {
  if (delays.fetch_sub(2) == 3) end();
}

int stop_signal() { return received.load(); }

int stop_exit_code() { return received.load() == 0 ? 0 : 128 + received.load(); }

}  // namespace stretto::nn
