// Trains a Transformer on grooves, that is bass, drums and one harmony instrument, and lets it
// continue some: does it stay in the style it was given?
//
// In: MIDI files of --data DIR, or songs that it generates itself; --prompt FILE to continue. Out,
// in --out DIR: checkpoint, metrics.csv, a picture of the loss, the prompt and its continuations as
// MIDI and as piano rolls, and how alike they are, which --prompts measures over several songs.
// --compare only compares MIDI files.
#include "examples/common/command_line.h"
#include "examples/groove/groove_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::GrooveProgram>(
      argc, argv, "groove",
      "Trains a Transformer on bass, drums and harmony, and lets it continue some bars.");
}
