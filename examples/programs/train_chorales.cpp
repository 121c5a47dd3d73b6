// Trains a Music Transformer on four-voice chorales and generates some.
//
// Input: --data FILE, or generated chorales. Output, in --out DIR: checkpoint, metrics.csv,
// pictures of the loss, of attention weights and of the music, and the music as MIDI.
#include "examples/chorales/chorale_program.h"
#include "examples/common/command_line.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::ChoraleProgram>(
      argc, argv, "train_chorales",
      "Trains a Music Transformer on four-voice chorales and generates some.");
}
