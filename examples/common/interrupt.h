// Stopping a long run politely: a signal asks, the loop finishes its step and saves.
#pragma once

namespace stretto::examples {

/// From now on SIGINT and SIGTERM only set the flag that interrupted() reads, and a second SIGINT
/// ends the process at once with code 130. Interrupted system calls are restarted. Throws
/// std::system_error if the handlers cannot be installed.
void install_interrupt_handlers();

/// Whether SIGINT or SIGTERM has arrived since the handlers were installed.
bool interrupted();

/// Thrown to leave nested work that the user has stopped; no error, so no std::exception.
struct Interrupted {};

/// Throws Interrupted when interrupted().
void check_interrupt();

}  // namespace stretto::examples
