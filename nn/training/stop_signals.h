// Ctrl-C and SIGTERM end a training run after its step, with a checkpoint.
//
//     nn::Trainer trainer(model, optimizer,
//                         {.steps = 1000, .folder = "out/melody", .stop = nn::stop_on_signals()});
//     trainer.resume();
//     if (!trainer.run(loss)) return nn::stop_exit_code();
#pragma once

#include <functional>

namespace stretto::nn {

/// Returns a function for TrainerOptions::stop, and, as long as it or a copy lives, answers SIGINT
/// (Ctrl-C), SIGTERM and SIGHUP: the first of them makes it return true from then on, and prints a
/// line on standard error; the next one ends the process at once. A signal that was ignored before
/// stays ignored (nohup, jobs in the background of a script). Interrupted system calls are
/// restarted. Afterwards the signals are answered as before.
std::function<bool()> stop_on_signals();

/// The signal that stop_on_signals() has got; 0: none.
int stop_signal();
/// What a program that a signal has stopped returns from main(): 128 + the signal; 0: none came.
int stop_exit_code();

}  // namespace stretto::nn
