// Trains a Transformer to harmonize chorales: its encoder reads the soprano, its decoder generates
// alto, tenor and bass.
//
// Input: --data FILE, or generated chorales. Output, in --out DIR: checkpoint, metrics.csv, a
// picture of the loss, and validation pieces, as composed and as harmonized by the model, as MIDI
// and as piano rolls.
#include "examples/chorales/harmony_program.h"
#include "examples/common/command_line.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::HarmonyProgram>(
      argc, argv, "harmonize",
      "Trains a Transformer to harmonize the soprano of chorales with alto, tenor and bass.");
}
