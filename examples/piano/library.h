// The pieces for training and evaluating a model of piano music.
#pragma once

#include <string>
#include <vector>

#include "examples/midi/midi_folder.h"
#include "music/tokenizer.h"
#include "nn/data/token_stream.h"

namespace stretto::examples {

struct PianoPiece {
  std::string name;  ///< path of its file, relative to the folder
  nn::TokenStream tokens;
};

struct PianoLibrary {
  std::vector<PianoPiece> train, valid, test;
  std::vector<std::string> skipped;   ///< the reason, for each file that is not a piano piece
  MidiDefects damaged;                ///< defects of files that were read nevertheless
  std::vector<std::string> warnings;  ///< "FILE: …" for what has no token (Tokenizer::warnings)
  std::string locked;                 ///< see MidiFiles::locked_text
  std::string table;                  ///< path of the table; "": none
  int64_t left_out = 0;               ///< number of files that are not in the table
};

struct PianoLibraryOptions {
  std::string folder;  ///< searched with its subfolders for the names of midi_files()
  /// A tab-separated table with the columns file and split, or MAESTRO's CSV; "": the folder's
  /// maestro-v*.csv, if it has one
  std::string split;
  /// Without a table: in each group of `every` files the last file is for validation, and the file
  /// before it for testing.
  int64_t every = 10;
};

/// Reads all MIDI files (midi_files), in the order of their names, and skips files that are not
/// piano pieces (read_midi_file, Tokenizer::check_file). The table (each_line, text_file.h) names
/// files relative to the folder or to its parent; its splits are train, valid (or validation) and
/// test. A table whose name ends in .csv has quoted columns (RFC 4180), among them midi_filename and
/// split, and all of its files must be in the folder. Throws UsageError if no training or no
/// validation pieces are found, for a folder that cannot be read or has several maestro-v*.csv, and
/// for a table that cannot be read, lacks a column or has a file in two splits.
PianoLibrary read_library(const PianoLibraryOptions& options, const music::Tokenizer& tokens);

/// Returns generated pieces: chorales arranged for the piano, each at its own tempo, with a beat.
/// Piece i of a split depends only on seed, split and i.
PianoLibrary generated_library(uint64_t seed, const music::Tokenizer& tokens);

/// Returns a digest that identifies the pieces.
std::string fingerprint(const std::vector<PianoPiece>& pieces);

}  // namespace stretto::examples
