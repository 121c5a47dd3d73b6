// Stopping a long run politely: how SIGINT (Ctrl-C), SIGTERM and SIGHUP are answered.
//
// A step of training comes to its end first, so that it can be saved; everything else, such as
// making or reading data and drawing pictures, is ended where it is.
#pragma once

#include <mutex>
#include <string>

namespace stretto::examples {

/// From now on these signals only set the flag that interrupted() reads, and a line on standard
/// error says so at once; a second SIGINT ends the process within a second. SIGHUP and SIGINT stay
/// ignored if they were (nohup, and what a script starts in the background). Interrupted system
/// calls are restarted. Throws std::system_error where the handlers, or the thread that answers,
/// cannot be had.
void install_interrupt_handlers();

/// The same again after end_on_signal().
void ask_on_signal();

/// From now on a signal, or one that has come and was not yet heeded, ends the process at once,
/// with `last_words` as a line on standard output and as exit code 128 + the signal.
void end_on_signal(std::string last_words);

/// From now on these signals change nothing: all is done, and the program ends by itself.
void ignore_signals();

/// While this lock is held, end_on_signal and a second SIGINT wait, at most for a second: files are
/// being replaced.
std::unique_lock<std::timed_mutex> finish_files();

/// Whether a signal has asked to stop.
bool interrupted();

/// 128 + the signal that has asked to stop.
int interrupted_exit_code();

/// Thrown to leave nested work that the user has stopped; no error, so no std::exception.
struct Interrupted {};

/// Throws Interrupted when interrupted().
void check_interrupt();

}  // namespace stretto::examples
