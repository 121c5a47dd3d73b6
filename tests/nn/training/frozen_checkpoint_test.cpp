// Checkpoints without frozen parameters (SaveOptions::frozen, TrainerOptions::save_frozen).
#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::same_bits;

namespace {

struct Net : nn::Module {
  nn::Linear base{*this, "base", {4, 5}};
  nn::Linear head{*this, "head", {5, 3}};
  Tensor count = buffer("count", zeros({2}));
  Tensor operator()(const Tensor& x) const { return head(relu(base(x))); }
};

// A model with a fixed base, and its training.
struct Run {
  Run() {
    manual_seed(3);
    net.base.freeze();
  }
  void train(int64_t steps) {
    trainer.options.steps = steps;
    trainer.run([&](int64_t i) {
      manual_seed(uint64_t(i));
      return mean(square(net(randn({6, 4}))));
    });
  }
  Net net;
  nn::AdamW optimizer{net.head.parameters(), {.lr = 0.1}};
  nn::Trainer trainer{net, optimizer, {.save_frozen = false, .quiet = true}};
};

}  // namespace

TEST_CASE("a checkpoint without frozen parameters resumes bit for bit", "[checkpoint]") {
  const testing::TempDir dir;
  const std::string path = dir.file("a.safetensors");
  Run whole, first, second;
  nn::copy_state(whole.net, first.net);
  nn::copy_state(whole.net, second.net);
  whole.train(8);
  first.train(4);
  first.trainer.save(path);
  const nn::SafetensorsFile file(path);
  for (const auto& entry : file.entries()) CHECK(entry.name.find("base") == std::string::npos);
  CHECK(file["model.count"].numel() == 2);  // a buffer is not frozen

  second.trainer.options.steps = 8;
  second.trainer.load(path);
  CHECK(same_bits(second.net.base.weight, whole.net.base.weight));
  second.train(8);
  CHECK(same_bits(second.net.head.weight, whole.net.head.weight));
  CHECK(same_bits(second.net.head.bias, whole.net.head.bias));
}

TEST_CASE("a checkpoint without frozen parameters is loaded only with the same ones frozen",
          "[checkpoint]") {
  const testing::TempDir dir;
  const std::string path = dir.file("a.safetensors");
  Run run;
  run.train(1);
  run.trainer.save(path);
  Net other;
  CHECK_THROWS_WITH(nn::load_checkpoint(path, other, nullptr),
                    Containing("base.weight: not in the file"));
  other.freeze();
  CHECK_THROWS_WITH(nn::load_checkpoint(path, other, nullptr),
                    Containing("head.weight: in the file, but not expected"));

  // Without frozen parameters the option has no effect.
  Net all;
  nn::save_checkpoint(dir.file("b"), all, nullptr, {}, {.frozen = false});
  nn::save_checkpoint(dir.file("c"), all, nullptr, {});
  CHECK(testing::read_file(dir.file("b")) == testing::read_file(dir.file("c")));
}
