#include "stretto_pretrained.h"
#include "tests/pretrained/published/checkpoint.h"
#include "tests/reference/published/published.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::as_batch;
using testing::Checkpoint;
using testing::some_tokens;
using testing::worst_error;

TEST_CASE("T5 loads from its checkpoint in two shards", "[published]") {
  Checkpoint file;
  file.add("shared.weight", {11, 12});
  for (const std::string stack : {"encoder.", "decoder."}) {
    for (const int n : {0, 1}) {
      const std::string block = str(stack, "block.", n, ".layer.");
      int layer = 0;
      const auto attention = [&](const std::string& name) {
        const std::string at = block + std::to_string(layer++) + ".";
        for (const char* part : {".q", ".k", ".v"}) file.add_linear(at + name + part, 12, 8, false);
        file.add_linear(at + name + ".o", 8, 12, false);
        file.add_norm(at + "layer_norm", 12, false);
      };
      attention("SelfAttention");
      if (stack == "decoder.") attention("EncDecAttention");
      const std::string last = block + std::to_string(layer) + ".";
      file.add_linear(last + "DenseReluDense.wi_0", 12, 20, false);
      file.add_linear(last + "DenseReluDense.wi_1", 12, 20, false);
      file.add_linear(last + "DenseReluDense.wo", 20, 12, false);
      file.add_norm(last + "layer_norm", 12, false);
    }
    file.add(stack + "block.0.layer.0.SelfAttention.relative_attention_bias.weight", {8, 2});
    file.add_norm(stack + "final_layer_norm", 12, false);
  }
  file.add_linear("lm_head", 12, 11, false);
  const testing::TempDir folder;
  testing::save_two_shards(folder, file.named());

  nn::SequenceToSequence::Options options = nn::t5_options(11, nn::T5Version::v1_1);
  options.n_encoder_layers = options.n_decoder_layers = 2;
  options.layer.d_model = 12;
  options.layer.attention.n_heads = 2;
  options.layer.feed_forward.d_hidden = 20;
  options.layer.attention.d_key = options.layer.attention.d_value = 4;
  options.layer.attention.position = nn::t5_bias({.buckets = 8, .max_distance = 9});
  nn::SequenceToSequence model(options);
  model.to(f64);
  model.eval();
  nn::load_weights(folder.str(), model, nn::t5_names(options));
  const std::vector<int64_t> target{0, 7, 7, 2, 8, 1, 10, 4, 3, 3, 6, 5};
  const reference::Matrix want =
      reference::t5(reference::Weights(file.tensors()), some_tokens, target, 2, 2, 9);
  CHECK(worst_error(model(as_batch(some_tokens), as_batch(target))[0], reference::tensor(want)) <
        1e-10);
}
