// The optimizers and schedules of the training programs.
#include "nn/files/safetensors.h"
#include "tests/examples/tiny_programs.h"

using namespace stretto;                     // NOLINT
using namespace stretto::examples::testing;  // NOLINT

TEST_CASE("programs train with Muon and a warmup-stable-decay schedule", "[examples]") {
  for (const Tiny& tiny : programs()) {
    INFO(tiny.name);
    const TempDir folder;
    const std::string out = folder.file("out"), file = out + "/checkpoint.safetensors";
    const Arguments muon{"--optimizer", "muon", "--schedule", "wsd"};
    const auto run_with = [&](Arguments more) {
      more.insert(more.end(), muon.begin(), muon.end());
      return run(tiny.path(), tiny.command(out, more));
    };
    const Ended ended = run_with({"--steps", "4"});
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    const nn::Safetensors saved = nn::load_safetensors(file);
    CHECK(saved.metadata.at("stretto.optimizer") == "Muon");
    CHECK(saved.metadata.at("schedule") == "wsd");
    // Matrices in layers have a momentum, all other parameters the moments of AdamW.
    int matrices = 0, others = 0;
    for (const nn::NamedTensor& n : saved.tensors) {
      if (n.name.starts_with("optim.") && n.name.ends_with(".momentum")) {
        CHECK(n.name.find("layers.") != std::string::npos);
        CHECK(n.tensor.dim() == 2);
        ++matrices;
      }
      others += n.name.starts_with("optim.") && n.name.ends_with(".v");
    }
    CHECK(matrices >= 4);
    CHECK(others >= 2);
    CHECK(run_with({"--steps", "6", "--resume", file}).status == 0);
    CHECK(run(tiny.path(),
              tiny.command(out, {"--steps", "8", "--resume", file, "--optimizer", "adamw"}))
              .status == 2);
  }
}
