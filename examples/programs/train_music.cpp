// Trains a model of piano music on MIDI files, with any attention and position, measures how it
// predicts beyond the length it was trained on, and lets it write a piece.
//
// In: --data DIR, or pieces that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, the loss against the position as a table and a picture, how far attention depends
// on distance alone (position_measures.csv), pictures of the loss and of attention, and the piece
// as MIDI and as a piano roll.
#include "examples/common/command_line.h"
#include "examples/piano/piano_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::PianoProgram>(
      argc, argv, "train_music",
      "Trains a model of piano music on MIDI files, measures it and lets it write.");
}
