// Trains a Transformer on grooves (bass, drums and one harmony instrument), lets it continue some,
// and measures whether it stays in the style of the prompt.
//
// Input: MIDI files of --data DIR, or generated songs; --prompt FILE to continue. Output, in --out
// DIR: checkpoint, metrics.csv, a picture of the loss, the prompt and its continuations as MIDI and
// as piano rolls, and their style similarity, which --prompts averages over several songs.
// --compare only compares MIDI files.
#include "examples/common/command_line.h"
#include "examples/groove/groove_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::GrooveProgram>(
      argc, argv, "groove",
      "Trains a Transformer on bass, drums and harmony, and continues some bars.");
}
