// Ctrl-C and SIGTERM stop a training run after the current step, with a checkpoint.
//
//     nn::Trainer trainer(model, optimizer,
//                         {.steps = 1000, .folder = "out/melody", .stop = nn::stop_on_signals()});
//     trainer.resume();
//     if (!trainer.run(loss)) return nn::stop_exit_code();
#pragma once

#include <functional>
#include <string>

namespace stretto::nn {

/// Returns a function for TrainerOptions::stop and handles SIGINT (Ctrl-C), SIGTERM and SIGHUP
/// while this function or a copy of it lives. The first signal makes the function return true from
/// then on and prints a line on standard error; a later SIGINT ends the process at once. A first
/// signal before Trainer::run() has no effect until run(), which then makes no step. A signal
/// that was ignored before stays ignored (nohup, background jobs of a script). Interrupted system
/// calls are restarted. The previous handlers are restored when the last copy is destroyed.
std::function<bool()> stop_on_signals();

/// Handles these signals until the process ends: each prints `last_words` as a line on standard
/// output and exits with 128 + the signal's number, as does a signal that has made
/// stop_on_signals() stop. The next call of stop_on_signals() lets signals stop a run again.
void end_on_signal(const std::string& last_words);

/// While an object exists, such as during the replacement of files, a signal that ends the process
/// waits for the object's end; the next signal does not wait.
class DelaySignals {
 public:
  DelaySignals();
  ~DelaySignals();
  DelaySignals(const DelaySignals&) = delete;
  DelaySignals& operator=(const DelaySignals&) = delete;
};

/// Returns the signal that stop_on_signals() has received; 0 if none.
int stop_signal();
/// Returns the exit status for main(): 128 + the received signal; 0 if none.
int stop_exit_code();

}  // namespace stretto::nn
