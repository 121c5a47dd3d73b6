// The pieces that a model of piano music learns from and is judged by.
#pragma once

#include <string>
#include <vector>

#include "examples/midi/midi_folder.h"
#include "examples/piano/piano_tokens.h"

namespace stretto::examples {

struct PianoPiece {
  std::string name;  // of its file, from the folder on
  std::vector<int> tokens;
};

struct PianoLibrary {
  std::vector<PianoPiece> train, valid, test;
  std::vector<std::string> skipped;  // why, a line for each file that holds no piece
  MidiDefects damaged;               // files that are pieces nevertheless
  std::string locked;                // MidiFiles::locked_text
  int64_t left_out = 0;              // files that the table does not name
};

struct PianoLibraryOptions {
  std::string folder;  // searched with all its folders for *.mid, *.midi and *.MID
  std::string split;   // a table: tab-separated, with the columns file and split; "": none
  int64_t every =
      10;  // without: of so many files in a row the last validates, the one before tests
  bool pedal = false;
};

/// Reads all MIDI files (midi_files), in the order of their names; what is no piece for the piano
/// (read_midi, check_piano_file) is skipped. The table (each_line, text_file.h) names files from
/// the folder or from the one above, and its splits are train, valid (or validation) and test.
/// Throws UsageError if nothing to learn from or to validate by is found, for a folder that cannot
/// be read, and for a table that cannot be read, lacks a column or puts one file into two splits.
PianoLibrary read_library(const PianoLibraryOptions& options, const PianoTokens& tokens);

/// Pieces that a program composes where there are none: chorales for the piano, each at a tempo of
/// its own, with a beat. Piece i of a split is a function of seed, split and i.
PianoLibrary generated_library(uint64_t seed, const PianoTokens& tokens);

/// A name for pieces.
std::string fingerprint(const std::vector<PianoPiece>& pieces);

}  // namespace stretto::examples
