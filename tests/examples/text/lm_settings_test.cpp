// Settings of train_lm: presets, positions.

#include "examples/text/lm_settings.h"

#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

LmSettings tiny() {
  LmSettings s;
  s.layers = 3;
  s.d_model = 12;
  s.heads = 2;
  s.d_hidden = 20;
  s.length = 8;
  s.memory = 0;
  return s;
}

std::string refused(const LmSettings& s) {
  return error_of<UsageError>([&] { s.check(); });
}

}  // namespace

TEST_CASE("presets have the lengths of the published scripts", "[examples]") {
  for (const char* name : {"enwik8-12l", "enwik8-24l", "text8-12l", "text8-24l", "wt103-base",
                           "wt103-large", "lm1b-base", "lm1b-large"}) {
    INFO(name);
    const LmPreset preset = lm_preset(name);
    const auto number = [&](const char* key) { return std::stoll(preset.settings.at(key)); };
    CHECK(number("length") == number("memory"));
    CHECK(preset.eval_same_length);
    CHECK(preset.eval_memory > number("memory"));
    CHECK(preset.eval_length <= number("length"));
    CHECK(number("warmup") < number("steps"));
  }
}

TEST_CASE("presets name settings that exist", "[examples]") {
  const nn::Metadata all = settings_to_metadata(LmSettings());
  for (const char* name : {"enwik8-12l", "enwik8-24l", "text8-12l", "text8-24l", "wt103-base",
                           "wt103-large", "lm1b-base", "lm1b-large", "nano", "small"}) {
    CHECK(!lm_preset(name).settings.empty());
    for (const auto& setting : lm_preset(name).settings) CHECK(all.count(setting.first) == 1);
  }
}

TEST_CASE("invalid settings of a language model are rejected", "[examples]") {
  const auto with = [](auto change) {
    LmSettings s = tiny();
    change(s);
    return refused(s);
  };
  CHECK_THAT(with([](LmSettings& s) { s.position = "far"; }),
             Containing("--position far: accepted values are none, sinusoid, learned, music, "));
  for (const std::string position : {"sinusoid", "sinusoid+music", "music-local"})
    CHECK(with([&](LmSettings& s) { s.position = position, s.memory = 8; }) ==
          "--memory 8: --position " + position +
              " counts from the start of each segment and does not support a memory");
  CHECK_THAT(with([](LmSettings& s) { s.position = "music+rope"; }),
             Containing("--position music+rope: needs an encoding of the input"));
  CHECK(with([](LmSettings& s) { s.d_model = 13, s.d_head = 4; }) ==
        "--d-model 13: sinusoids need an even dimension");
  CHECK_THAT(
      with([](LmSettings& s) { s.position = "rope", s.d_head = 5; }),
      Containing(
          "--position rope rotates pairs of features, but the head dimension is 5; accepted"));
  CHECK(with([](LmSettings& s) { s.cutoffs = "5,5"; }) == "--cutoffs 5,5: must rise from 1");
  CHECK(with([](LmSettings& s) { s.cutoffs = "5,"; }) ==
        "--cutoffs 5,: must be whole numbers with commas between them");
  CHECK(with([](LmSettings& s) { s.div = 2; }) == "--div 2: needs --cutoffs");
  CHECK(with([](LmSettings& s) { s.div = 4, s.cutoffs = "2,4"; }) ==
        "--div 4: reduces the dimension of the last of 3 clusters to 0");
  LmSettings s = tiny();
  s.cutoffs = "5,23";
  CHECK(error_of<UsageError>([&] { s.model(23); }) ==
        "--cutoffs 5,23: must be below the vocabulary, which has 23 tokens");
}
