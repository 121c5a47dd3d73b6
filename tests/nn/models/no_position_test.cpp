// A model without any position is an error, unless its options say that none is wanted.
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/bert.h"
#include "nn/models/classifier.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "nn/models/vision_transformer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

template <class Model>
std::string error_with(const typename Model::Options& options) {
  return error_of<Error>([&] { const Model model(options); });
}

std::string message(const std::string& model, const std::string& input) {
  return "[" + model + "] there is no position; set .layer.attention.position or " + input +
         "; nn::no_position() states that none is wanted";
}

const std::string absolute = ".input.sinusoid or .input.learned_length", none = "(nothing thrown)";

}  // namespace

TEST_CASE("a language model needs a position, an ordered kernel or no_position()") {
  nn::LanguageModel::Options o{
      .vocabulary = 5, .n_layers = 2, .layer = {.d_model = 8, .feed_forward = {.d_hidden = 4}}};
  const auto with = [&](auto&& change) {
    nn::LanguageModel::Options changed = o;
    change(changed);
    return error_with<nn::LanguageModel>(changed);
  };
  const std::string refused = message("LanguageModel", absolute);
  CHECK(error_with<nn::LanguageModel>(o) == refused);
  CHECK(with([](auto& c) { c.layer.attention.kernel = nn::linear_kernel(); }) == refused);
  CHECK(with([](auto& c) { c.layer.attention.kernel = nn::gated_linear_kernel(); }) == refused);
  CHECK(with([](auto& c) { c.layer.attention.kernel = nn::gla_kernel(); }) == none);
  CHECK(with([](auto& c) { c.layer.attention.kernel = nn::delta_kernel(); }) == none);
  CHECK(with([](auto& c) { c.layer.attention.position = nn::no_position(); }) == none);
  CHECK(with([](auto& c) { c.input.sinusoid = nn::Sinusoid::interleaved; }) == none);
  CHECK(with([](auto& c) { c.input.learned_length = 3; }) == none);
  CHECK(with([](auto& c) { c.shared_sinusoids = true; }) == none);
  CHECK(with([](auto& c) {
          c.vary_layer = [](int64_t i, nn::LayerOptions& layer) {
            if (i == 1) layer.attention.position = nn::no_position();
          };
        }) == none);
}

TEST_CASE("the other models need a position or no_position() too") {
  const nn::LayerOptions layer{.d_model = 8, .feed_forward = {.d_hidden = 4}};
  nn::SequenceToSequence::Options pair{.source_vocabulary = 5,
                                       .target_vocabulary = 5,
                                       .n_encoder_layers = 1,
                                       .n_decoder_layers = 1,
                                       .layer = layer};
  CHECK(error_with<nn::SequenceToSequence>(pair) == message("SequenceToSequence", absolute));
  pair.encoder_position = nn::no_position();
  CHECK(error_with<nn::SequenceToSequence>(pair) == message("SequenceToSequence", absolute));
  pair.decoder_position = nn::no_position();
  CHECK(error_with<nn::SequenceToSequence>(pair) == none);

  nn::SequenceClassifier::Options classes{.vocabulary = 5, .n_layers = 1, .layer = layer};
  CHECK(error_with<nn::SequenceClassifier>(classes) == message("SequenceClassifier", absolute));
  classes.input.learned_length = 3;
  CHECK(error_with<nn::SequenceClassifier>(classes) == none);

  nn::Bert::Options bert{
      .vocabulary = 5, .n_layers = 1, .layer = layer, .learned_positions = false};
  CHECK(error_with<nn::Bert>(bert) == message("Bert", ".learned_positions"));
  bert.disentangled.emplace();
  CHECK(error_with<nn::Bert>(bert) == none);

  nn::VisionTransformer::Options images{
      .image = 4, .patch = 2, .n_layers = 1, .layer = layer, .position = nn::ImagePosition::none};
  CHECK(error_with<nn::VisionTransformer>(images) == message("VisionTransformer", ".position"));
  images.position = nn::ImagePosition::sinusoid;
  CHECK(error_with<nn::VisionTransformer>(images) == none);
}
