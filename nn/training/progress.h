// How far a long run has come, for a person at a terminal or for a log.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

namespace stretto::nn {

/// Where and how progress is shown. The defaults suit a program; tests set them all.
struct ProgressOptions {
  std::ostream* out = nullptr;    // null: standard error
  std::optional<bool> terminal;   // unset: asked of standard error
  std::optional<int> columns;     // width of the terminal; unset: asked on every redraw
  double seconds_between = 5;     // between the lines of a log
  double starting_fraction = 0;   // what fraction was done before this run (a resumed one)
  std::function<double()> clock;  // seconds, never falling; unset: the steady clock
};

/// On a terminal, one line that is redrawn in place (at most ten times a second); elsewhere, a
/// plain line every few seconds. Shows the share done, the step, the loss, tokens/s, the time taken
/// and the time left.
class Progress {
 public:
  /// `total_steps` of zero or less means that the number is not known.
  explicit Progress(int64_t total_steps, ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Ends an open line.
  ~Progress();

  /// Reports that `step` steps and the share `fraction_done` (0 to 1, by which the time left is
  /// estimated) of the run are done. A loss or rate that is NaN is left out.
  void update(int64_t step, double fraction_done, double loss, double tokens_per_second);

  /// Prints a line of its own above the progress line.
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

/// A length of time for people: "7s", "3m05s", "2h07m", "4d03h"; "?" if unknown (NaN or infinite).
std::string duration_text(double seconds);

}  // namespace stretto::nn
