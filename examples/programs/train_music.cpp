// Trains a model of piano music on MIDI files, with any attention kernel and positional encoding,
// measures how it extrapolates past the trained length, and generates a piece.
//
// Input: MIDI files of --data DIR, or generated pieces. Output, in --out DIR: checkpoint,
// metrics.csv, evaluation.csv, the loss by position as a table and a picture, how far attention
// depends only on the relative position (position_measures.csv), pictures of the loss and of
// attention weights, and the piece as MIDI and as a piano roll.
#include "examples/common/command_line.h"
#include "examples/piano/piano_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::PianoProgram>(
      argc, argv, "train_music",
      "Trains a model of piano music on MIDI files, evaluates it and generates a piece.");
}
