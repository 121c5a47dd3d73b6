// Trains a language model on a text, with any of the positions, and measures what each remembers.
//
// In: --data FILE, or text that it generates itself. Out, in --out DIR: checkpoint, metrics.csv,
// evaluation.csv, position_loss.csv, their pictures, and text that the model writes.
#include "examples/common/command_line.h"
#include "examples/text/lm_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::LmProgram>(
      argc, argv, "train_lm",
      "Trains a language model on a text and measures what its positions remember.");
}
