// Trains a Music Transformer on four-voice chorales, and lets it write some.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint,
// metrics.csv, pictures of the loss, of attention and of the music, and the music as MIDI.
#include "examples/chorales/chorale_program.h"
#include "examples/common/command_line.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::ChoraleProgram>(
      argc, argv, "train_chorales",
      "Trains a Music Transformer on four-voice chorales and lets it write some.");
}
