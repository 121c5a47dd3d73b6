// Four-voice chorales on a grid of sixteenth notes: the data of the music example.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stretto::examples {

/// One piece. A step lasts a sixteenth note and holds the MIDI note numbers (0 to 127) that sound
/// in soprano, alto, tenor and bass, -1 where a voice is silent.
struct Chorale {
  std::vector<std::array<int, 4>> steps;
};

/// Pieces to train on, to tune on and to report on.
struct ChoraleSet {
  std::vector<Chorale> train, valid, test;
};

/// Reads a JSON object with the keys "train", "valid" and "test", each a list of chorales, each a
/// list of steps, each four whole numbers (73 or 73.0); other keys are ignored, and no object may
/// have a key twice. Throws UsageError with one line that names the file and the place of the first
/// defect.
ChoraleSet load_chorales(const std::string& path);

/// Writes `set` in the form that load_chorales() reads, replacing the file at `path` in one go.
/// Throws std::invalid_argument for a set that load_chorales() would refuse, and as
/// write_file_atomically() does.
void save_chorales(const std::string& path, const ChoraleSet& set);

/// Composes pieces of four-voice harmony to train on where the real chorales are not at hand: 100
/// to 400 steps each, in major and minor keys, of phrases that return. Piece i of a split depends
/// on `seed`, the split and i alone, and is the same on every machine. Throws
/// std::invalid_argument for a negative count.
ChoraleSet generate_chorales(uint64_t seed, int n_train = 200, int n_valid = 25, int n_test = 25);

}  // namespace stretto::examples
