// Fine-tunes a published language model on a text, with LoRA adapters or in all weights.
//
// Input: MODEL, a folder or a GGUF file; --data FILE, a text in UTF-8. Output, in --out DIR: the
// adapters in PEFT's format or the weights, checkpoint, metrics.csv and its picture.
#include "examples/common/command_line.h"
#include "examples/published/finetune_program.h"

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::FinetuneProgram>(
      argc, argv, "finetune",
      "Fine-tunes a published language model on a text, with LoRA or in all weights.");
}
