// A progress display for long runs, on a terminal or in a log.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

namespace stretto::nn {

/// Options of Progress. The defaults are meant for programs; tests set all options.
struct ProgressOptions {
  std::ostream* out = nullptr;         ///< Output stream; null: standard error.
  std::optional<bool> terminal = {};   ///< Redraw one line in place; unset: on a terminal.
  std::optional<int> columns = {};     ///< Width of the terminal; unset: queried on every redraw.
  double seconds_between = 5;          ///< Seconds between lines of a log.
  double starting_fraction = 0;        ///< Fraction done before this run started (resumed runs).
  std::function<double()> clock = {};  ///< Seconds, monotonic; unset: std::chrono::steady_clock.
};

/// Shows the fraction done, the step, the loss, tokens/s, the elapsed time and the estimated time
/// left. On a terminal it redraws one line in place, at most ten times a second; elsewhere it
/// prints a line every few seconds.
class Progress {
 public:
  /// If `total_steps` is zero or less, the number of steps is unknown.
  explicit Progress(int64_t total_steps, ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends an open line.
  ~Progress();

  /// Reports that `step` steps are done, which are `fraction_done` (0 to 1) of the run. The time
  /// left is estimated from `fraction_done`. A loss or rate that is NaN is not shown.
  void update(int64_t step, double fraction_done, double loss, double tokens_per_second);

  /// Prints a separate line above the progress line.
  void message(const std::string& line);

  /// Shows the last update and ends the line; later calls do nothing.
  void finish();

 private:
  double seconds() const;
  int columns() const;
  std::string bar_line() const;
  std::string log_line() const;
  std::string figures() const;
  void show();

  int64_t total_steps_;
  ProgressOptions options_;
  std::ostream& out_;
  bool terminal_;
  double started_;
  double shown_at_ = 0;
  bool ever_shown_ = false;
  bool pending_ = false;  // the last update has not been shown
  bool line_open_ = false;
  bool finished_ = false;
  bool have_update_ = false;

  int64_t step_ = 0;
  double fraction_ = 0;
  double loss_ = 0;
  double tokens_per_second_ = 0;
  double updated_at_ = 0;
};

/// Returns a readable duration: "7s", "3m05s", "2h07m", "4d03h"; "?" for NaN and infinity.
std::string duration_text(double seconds);

}  // namespace stretto::nn
