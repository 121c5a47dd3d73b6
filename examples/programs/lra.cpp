// Trains a classifier of long sequences on a task of the Long Range Arena, with any attention and
// position, and measures its accuracy.
//
// In: --data FILE, or ListOps that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, the curve of the loss, and with --write-data what was generated.
#include "examples/common/command_line.h"
#include "examples/lra/lra_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::LraProgram>(
      argc, argv, "lra", "Trains a classifier on a task of the Long Range Arena and measures it.");
}
