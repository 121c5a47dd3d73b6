#include "nn/training/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <utility>

#include "autograd/profile.h"

namespace stretto::nn {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr int bar_cells = 24;

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[128];
  const int length = std::snprintf(buffer, sizeof(buffer), pattern, values...);
  return std::string(buffer, size_t(std::clamp(length, 0, 127)));
}

std::string rate_text(double per_second) {
  if (per_second >= 1e6) return format("%.2fM tok/s", per_second / 1e6);
  if (per_second >= 1e4) return format("%.1fk tok/s", per_second / 1e3);
  return format("%.0f tok/s", per_second);
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 1e9) return "?";
  const auto whole = static_cast<long long>(std::llround(std::max(seconds, 0.0)));
  if (whole < 60) return format("%llds", whole);
  if (whole < 3600) return format("%lldm%02llds", whole / 60, whole % 60);
  if (whole < 86400) return format("%lldh%02lldm", whole / 3600, whole / 60 % 60);
  return format("%lldd%02lldh", whole / 86400, whole / 3600 % 24);
}

// True if standard error is a terminal that supports escape sequences.
static bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && !(term != nullptr && std::strcmp(term, "dumb") == 0);
}

Progress::Progress(int64_t total_steps, ProgressOptions options)
    : total_steps_(total_steps),
      options_(std::move(options)),
      out_(options_.out != nullptr ? *options_.out : std::cerr),
      terminal_(options_.terminal.value_or(is_terminal())),
      started_(seconds()) {}

Progress::~Progress() {
  if (line_open_) out_ << std::endl;
}

double Progress::seconds() const { return options_.clock ? options_.clock() : steady_seconds(); }

int Progress::columns() const {
  if (options_.columns) return *options_.columns;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void Progress::update(int64_t step, double fraction_done, double loss, double tokens_per_second) {
  if (finished_) return;
  step_ = step;
  fraction_ = std::isfinite(fraction_done) ? std::clamp(fraction_done, 0.0, 1.0) : 0.0;
  loss_ = loss;
  tokens_per_second_ = tokens_per_second;
  updated_at_ = seconds();
  have_update_ = pending_ = true;
  const double interval = terminal_ ? redraw_seconds : options_.seconds_between;
  if (!ever_shown_ || updated_at_ - shown_at_ >= interval) show();
}

void Progress::message(const std::string& line) {
  if (line_open_) out_ << "\r\x1b[K";
  line_open_ = false;
  out_ << line + '\n' << std::flush;  // one write, within which no signal handler prints
  if (terminal_ && have_update_ && !finished_) show();
}

void Progress::finish() {
  if (finished_) return;
  if (pending_) show();
  if (line_open_) out_ << '\n';
  out_.flush();
  line_open_ = false;
  finished_ = true;
}

void Progress::show() {
  shown_at_ = updated_at_;
  ever_shown_ = true;
  pending_ = false;
  if (terminal_) {
    // Leaves one column free: some terminals wrap as soon as the last one is filled.
    const auto width = size_t(std::max(columns() - 1, 0));
    out_ << '\r' + bar_line().substr(0, width) + "\x1b[K" << std::flush;
    line_open_ = true;
  } else {
    out_ << log_line() + '\n' << std::flush;
  }
}

std::string Progress::bar_line() const {
  const std::string percent = format("%3.0f%% ", std::floor(fraction_ * 100));
  const std::string rest = figures();
  const int width = columns() - 1 - int(percent.size() + rest.size()) - 3;
  const int cells = std::min(width, bar_cells);
  if (cells < 5) return percent + rest;
  const int done = int(fraction_ * cells);
  std::string bar(size_t(cells), '-');
  std::fill_n(bar.begin(), done, '=');
  if (done < cells) bar[size_t(done)] = '>';
  return "[" + bar + "] " + percent + rest;
}

std::string Progress::log_line() const { return format("%5.1f%%  ", fraction_ * 100) + figures(); }

std::string Progress::figures() const {
  std::string text = "step " + std::to_string(step_);
  if (total_steps_ > 0) text += "/" + std::to_string(total_steps_);
  if (!std::isnan(loss_)) text += format("  loss %.4f", loss_);
  if (!std::isnan(tokens_per_second_)) text += "  " + rate_text(tokens_per_second_);
  const double elapsed = updated_at_ - started_;
  text += "  " + duration_text(elapsed);
  const double covered = fraction_ - options_.starting_fraction;
  const double left =
      covered > 0 ? elapsed * (1 - fraction_) / covered : std::numeric_limits<double>::quiet_NaN();
  return text + "  left " + duration_text(left);
}

}  // namespace stretto::nn
