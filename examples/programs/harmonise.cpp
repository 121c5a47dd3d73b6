// Trains a Transformer to harmonise chorales: its encoder reads the soprano, its decoder writes
// alto, tenor and bass.
//
// In: --data FILE, or chorales that it generates itself. Out, in --out DIR: checkpoint,
// metrics.csv, a picture of the loss, and validation pieces as they were composed and as the model
// harmonises their soprano, as MIDI and as piano rolls.
#include "examples/chorales/harmony_program.h"
#include "examples/common/command_line.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::HarmonyProgram>(
      argc, argv, "harmonise",
      "Trains a Transformer to write alto, tenor and bass to the soprano of chorales.");
}
