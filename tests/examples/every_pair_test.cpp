// Every positional encoding with every attention kernel, up to generation and evaluation: pairs
// that these do not support must be rejected before training.
#include <algorithm>
#include <functional>

#include "core/random.h"
#include "examples/chorales/chorale_program.h"
#include "examples/chorales/harmony_program.h"
#include "examples/groove/groove_program.h"
#include "examples/lra/lra_program.h"
#include "examples/piano/piano_program.h"
#include "examples/piano/piano_writing.h"
#include "examples/text/lm_evaluation.h"
#include "examples/text/lm_program.h"
#include "tests/examples/chorales/train_chorales.h"
#include "tests/support/catch.h"

namespace stretto::examples::testing {
namespace {

// Calls body with settings of one layer for each pair that check() accepts. Returns their number.
template <class Settings>
int each_pair(Settings s, const std::function<void(const Settings&)>& body) {
  s.layers = 1;
  s.d_model = 16;
  s.heads = 2;
  s.d_hidden = 16;
  s.d_head = 0;
  s.batch = 2;
  s.features = 4;
  s.realizations = s.sines = s.taps = 2;
  s.dropout = 0;
  s.attention_dropout = 0;
  s.steps = 1;
  int accepted = 0;
  for (const std::string& kernel : nn::kernel_names())
    for (const std::string& position : nn::position_names()) {
      s.attention = kernel;
      s.position = position;
      INFO("--attention " << kernel << " --position " << position);
      try {
        s.check();
      } catch (const UsageError&) {
        continue;
      }
      manual_seed(1);
      CHECK_NOTHROW(body(s));
      ++accepted;
    }
  return accepted;
}

// Returns the number of pairs that the traits allow, without the positions of a plane.
int pairs_by_traits(bool bidirectional, bool memory = false) {
  int n = 0;
  for (const nn::PositionEntry& position : nn::positions())
    for (const nn::KernelEntry& kernel : nn::kernels()) {
      const nn::PositionTraits p = position.traits();
      const nn::KernelTraits k = kernel.traits();
      n += !p.plane && (bidirectional ? p.bidirectional : p.causal) && !(p.scores && k.recurrent) &&
           (!memory || (p.memory && k.memory));
    }
  return n;
}

}  // namespace

TEST_CASE("train_chorales generates with every pair of kernel and positional encoding",
          "[examples]") {
  ChoraleSettings s;
  s.length = 8;
  const int pairs = each_pair<ChoraleSettings>(s, [](const ChoraleSettings& tiny) {
    nn::LanguageModel model(tiny.model());
    const nn::PositionSettings p = tiny.positions();
    const int64_t steps =
        std::min<int64_t>(5, tiny.room(p) / 4);  // longer than the training length
    continue_chorale(model, {}, steps, tiny.cache_limit(p, tiny.length), {}, 1);
    model.attention_weights(full({1, tiny.length}, 1, {.dtype = i64}));
  });
  CHECK(pairs == pairs_by_traits(false));
}

TEST_CASE("groove continues with every pair of kernel and positional encoding", "[examples]") {
  GrooveSettings s;
  s.length = 24;
  music::Song prompt = empty_groove();
  for (int i = 0; i < 3; ++i) prompt.tracks[1].notes.push_back({12 * i, 6, 36, 100});
  const int pairs = each_pair<GrooveSettings>(s, [&](const GrooveSettings& tiny) {
    nn::LanguageModel model(tiny.model());
    const nn::PositionSettings p = tiny.position_settings(tiny.length);
    const int64_t room = tiny.has_position("learned") ? 4 : 40;
    continue_groove(model, prompt, {.tokens = room, .limit = tiny.cache_limit(p, tiny.length)});
  });
  CHECK(pairs == pairs_by_traits(false));
}

TEST_CASE("train_music writes with every pair of kernel and positional encoding", "[examples]") {
  PianoSettings s;
  s.length = 8;
  const PianoLibrary library = generated_library(1, s.language());
  const auto judged = windows(library.test, s.language(), 12, 3);
  const int pairs = each_pair<PianoSettings>(s, [&](const PianoSettings& tiny) {
    nn::LanguageModel model(tiny.model());
    const nn::PositionSettings p = tiny.positions();
    PianoWritingOptions o{.tokens = std::min<int64_t>(24, tiny.room(p)),
                          .limit = tiny.cache_limit(p, 0)};
    if (!tiny.has_position("learned")) o.tokens = 24;
    CHECK(write_piano(model, tiny.language(), {}, o).size() > 1);
    for (const double loss : loss_by_position(model, judged, 12, 2)) CHECK(std::isfinite(loss));
    model.attention_weights(full({1, 12}, 1, {.dtype = i64}));  // the length of an evaluation
  });
  CHECK(pairs == pairs_by_traits(false));
}

TEST_CASE(
    "train_lm writes with every pair of kernel and positional encoding, with and without memory",
    "[examples]") {
  for (const int64_t memory : {0, 6}) {
    LmSettings s;
    s.length = 8;
    s.memory = memory;
    const std::vector<int64_t> prompt(20, 1);  // longer than a segment
    const int pairs = each_pair<LmSettings>(s, [&](const LmSettings& tiny) {
      nn::LanguageModel model(tiny.model(8));
      write_tokens(model, prompt,
                   {.tokens = 12, .at_once = tiny.room(tiny.positions()), .context = tiny.length});
    });
    CHECK(pairs == pairs_by_traits(false, memory > 0));
  }
}

TEST_CASE("harmonize writes with every pair of kernel and positional encoding", "[examples]") {
  HarmonySettings s;
  s.length = 4;
  const ChoraleSet pieces = tiny_chorales();
  const int pairs = each_pair<HarmonySettings>(s, [&](const HarmonySettings& tiny) {
    nn::SequenceToSequence model(tiny.model());
    Chorale melody = pieces.valid.front();
    melody.steps.resize(9);  // several windows
    harmonize(model, melody, tiny.length, 2);
  });
  CHECK(pairs == pairs_by_traits(true));
}

TEST_CASE("lra classifies with every pair of kernel and positional encoding", "[examples]") {
  for (const char* pooling : {"cls", "first"}) {
    LraSettings s = lra_settings("listops", true);
    s.max_length = 8;
    s.max_expression = 9;
    s.min_expression = 2;
    s.max_depth = 2;
    s.pooling = pooling;
    s.expressions = s.held_out_expressions = 3;
    const LraData data = read_lra_data(s, {});
    const int pairs = each_pair<LraSettings>(s, [&](const LraSettings& tiny) {
      nn::SequenceClassifier model(tiny.model());
      evaluate(model, data.valid, tiny);
    });
    CHECK(pairs == pairs_by_traits(true));
  }
}

// Runs the programs with pairs that in the past failed after training.
TEST_CASE("programs finish with positions and kernels that need special generation", "[examples]") {
  NEEDS_PROGRAM("train_chorales");
  const TempDir folder;
  const std::string chorales = folder.file("tiny.json");
  save_chorales(chorales, tiny_chorales());
  const Arguments tiny = words(
      "--layers 1 --d-model 16 --heads 2 --batch 2 --d-hidden 16 --threads 1 "
      "--steps 1 --features 4");
  const std::vector<std::pair<std::string, Arguments>> programs{
      {"train_chorales", {"--data", chorales, "--length", "16"}},
      {"train_music",
       words("--length 16 --eval-windows 2 --validation-windows 2 --picture-length 8")},
      {"train_lm", words("--length 16 --held-out 0.0005 --validation-tokens 32 --generate 40")},
      {"groove", {"--length", "300", "--continuations", "1"}}};
  for (const auto& [program, more] : programs)
    for (const Arguments& pair : {Arguments{"--position", "learned"},
                                  {"--position", "bert", "--attention", "softmax"},
                                  {"--position", "sinusoid", "--attention", "performer"}}) {
      Arguments all = tiny;
      all.insert(all.end(), more.begin(), more.end());
      all.insert(all.end(), pair.begin(), pair.end());
      all.insert(all.end(), {"--out", folder.file("out"), "--overwrite"});
      const Ended ended = run(find_program(program), all);
      INFO(program << " " << pair[1] << ": " << ended.err);
      CHECK(ended.status == 0);
    }
}

TEST_CASE("lengths out of range of a table of positions are rejected", "[examples]") {
  NEEDS_PROGRAM("train_lm");
  const auto refused = [](const std::string& program, const Arguments& arguments,
                          const std::string& expected) {
    const TempDir folder;
    Arguments all{"--steps", "1", "--out", folder.file("out")};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Ended ended = run(find_program(program), all);
    CHECK(ended.status == 2);
    CHECK(ended.err == program + ": " + expected + "\n");
    CHECK(!std::filesystem::exists(folder.file("out")));
  };
  for (const char* position : {"learned", "bert"}) {
    const std::string has = std::string(": --position ") + position + " is limited to ";
    refused("train_lm",
            {"--position", position, "--memory", "0", "--length", "16", "--eval-length", "16,17"},
            "--eval-length 17" + has + "16 positions");
    refused(
        "train_music",
        {"--position", position, "--attention", "softmax", "--length", "16", "--eval-length", "33"},
        "--eval-length 33" + has + "32 positions");
  }
  refused("train_lm", words("--position bert --memory 8 --length 16 --eval-memory 9"),
          "--eval-length 16 with --eval-memory 9: --position bert is limited to 24 positions");
  refused("train_chorales", words("--position learned --length 16 --generate 9"),
          "--generate 9: --position learned is limited to 32 positions");
  refused("train_chorales", words("--position bert --length 16 --prime 9"),
          "--prime 9: --position bert is limited to 32 positions");
  for (const char* program : {"train_chorales", "harmonize", "train_lm", "groove", "lra"})
    refused(program, words("--position bert --attention softmax --max-distance 3"),
            std::string("--max-distance 3 for sequences of ") +
                (std::string(program) == "harmonize"  ? "64"
                 : std::string(program) == "train_lm" ? "128"
                 : std::string(program) == "lra"      ? "2000"
                                                      : "512") +
                ": --position bert is limited to 3 positions");
}

}  // namespace stretto::examples::testing
