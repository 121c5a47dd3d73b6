// Trains a classifier of long sequences on a task of the Long Range Arena, with any attention
// kernel and positional encoding, and measures its accuracy.
//
// Input: --data FILE, or generated ListOps. Output, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, the loss curve, and with --write-data the generated data.
#include "examples/common/command_line.h"
#include "examples/lra/lra_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::LraProgram>(
      argc, argv, "lra",
      "Trains a classifier on a task of the Long Range Arena and measures its accuracy.");
}
