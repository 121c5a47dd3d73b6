// How a long run reacts to SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//
// During training the current step is completed first, so that it can be saved. All other work,
// such as generating or reading data and drawing pictures, ends at once.
#pragma once

#include <mutex>
#include <string>

namespace stretto::examples {

/// Installs handlers: from now on these signals only set the flag that interrupted() reads and
/// print a line on standard error; a second SIGINT ends the process within a second. SIGHUP and
/// SIGINT stay ignored if they were (nohup, background jobs of scripts). Interrupted system calls
/// are restarted. Throws std::system_error if the handlers or their thread cannot be created.
void install_interrupt_handlers();

/// Restores the behavior of install_interrupt_handlers() after end_on_signal().
void ask_on_signal();

/// From now on a signal ends the process at once, also a signal that was received before and has
/// had no effect yet. The process prints `last_words` as a line on standard output and exits with
/// 128 + the signal's number.
void end_on_signal(std::string last_words);

/// From now on these signals are ignored: the work is done, and the program is about to exit.
void ignore_signals();

/// Returns a lock for replacing files: while it is held, end_on_signal() and a second SIGINT wait,
/// for at most 0.8 s.
std::unique_lock<std::timed_mutex> finish_files();

/// True if a signal has asked the program to stop.
bool interrupted();

/// Returns 128 + the number of the signal that has asked the program to stop.
int interrupted_exit_code();

/// Thrown to leave nested work that the user has stopped. It is not an error, so it does not
/// derive from std::exception.
struct Interrupted {};

/// Throws Interrupted if interrupted().
void check_interrupt();

}  // namespace stretto::examples
