// Four-voice chorales on a grid of sixteenth notes: the data of train_chorales and harmonize.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::examples {

/// One piece. A step lasts a sixteenth note and contains the MIDI note numbers (0 to 127) that
/// sound in soprano, alto, tenor and bass, or -1 if a voice is silent.
struct Chorale {
  std::vector<std::array<int, 4>> steps;
};

/// Pieces for training, validation and testing.
struct ChoraleSet {
  std::vector<Chorale> train, valid, test;
};

/// Reads a JSON object with the keys "train", "valid" and "test", each a list of chorales, each
/// a list of steps, each a list of four integers (73 or 73.0). Other keys are ignored; no
/// object may contain a key twice. Throws UsageError with one line that gives the file and the
/// place of the first defect.
ChoraleSet load_chorales(const std::string& path);

/// Writes `set` in the format that load_chorales() reads, replacing the file at `path`
/// atomically. Throws std::invalid_argument for a set that load_chorales() would reject, and the
/// errors of write_file_atomically().
void save_chorales(const std::string& path, const ChoraleSet& set);

/// Composes pieces of four-voice harmony, for training without the real chorales: 100 to 400
/// steps each, in major and minor keys, with recurring phrases. Piece i of a split depends only
/// on `seed`, the split and i, and is the same on every machine. Throws std::invalid_argument
/// for a negative count.
ChoraleSet generate_chorales(uint64_t seed, int n_train = 200, int n_valid = 25, int n_test = 25);

}  // namespace stretto::examples
