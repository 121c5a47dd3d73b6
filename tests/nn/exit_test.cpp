// What other statics use in their destructors is still there.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "nn/linear.h"
#include "nn/models/registry.h"
#include "nn/training/checkpoint.h"
#include "nn/training/stop_signals.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;

namespace {

// Constructed before main(), so destroyed after the statics within functions.
struct Last {
  ~Last() {
    if (!file) return;
    int status = 0;
    try {
      for (const nn::PositionEntry& p : nn::positions()) nn::find_position(std::string(p.name));
      for (const nn::KernelEntry& k : nn::kernels()) nn::find_kernel(std::string(k.name));
      if (nn::find_position("none").name != "none" || nn::find_kernel("softmax").name != "softmax")
        status = 2;
      nn::stop_on_signals();
      nn::Linear model({.in = 2, .out = 3});
      nn::save_checkpoint(file, model, nullptr, {});
      nn::load_checkpoint(file, model, nullptr);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      status = 3;
    }
    std::_Exit(status);
  }
  const char* file = nullptr;
} last;

}  // namespace

TEST_CASE("names, signals and checkpoints work in destructors of statics", "[fork]") {
  const testing::TempDir folder;
  const std::string file = folder.file("c.safetensors");
  nn::positions(), nn::kernels(), nn::stop_on_signals();
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    last.file = file.c_str();
    std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}
