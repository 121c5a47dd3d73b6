// The MIDI files of a folder.
#pragma once

#include <string>
#include <system_error>
#include <vector>

namespace stretto::examples {

/// The files below a folder whose names end with .mid or .midi, in capitals or not: their paths
/// from the folder on, with slashes, sorted. `error` says why the folder cannot be searched.
std::vector<std::string> midi_files(const std::string& folder, std::error_code& error);

}  // namespace stretto::examples
