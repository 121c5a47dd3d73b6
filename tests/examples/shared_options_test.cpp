// What every training program inherits: help, generated data, stops, and checks of shared options.

#include <array>
#include <csignal>
#include <filesystem>
#include <tuple>

#include "examples/chorales/chorale_program.h"
#include "examples/chorales/harmony_program.h"
#include "examples/common/settings.h"
#include "examples/groove/groove_settings.h"
#include "examples/groove/groove_tokens.h"
#include "examples/lra/lra_settings.h"
#include "examples/piano/piano_settings.h"
#include "examples/text/lm_settings.h"
#include "nn/models/registry.h"
#include "tests/examples/tiny_programs.h"

namespace {

using namespace stretto::examples;           // NOLINT
using namespace stretto::examples::testing;  // NOLINT

const std::string checkpoint = "/checkpoint.safetensors";

bool can_evaluate(const Tiny& tiny) {
  return tiny.name != "train_chorales" && tiny.name != "harmonize" && tiny.name != "train_tokens";
}

}  // namespace

TEST_CASE("--help lists every option with a description", "[examples]") {
  struct Options {
    std::map<std::string, std::string> settings;
    std::string others;
  };
  const std::string sampling = "generate temperature top-p ";
  std::map<std::string, Options> own{
      {"train_lm",
       {settings_to_metadata(LmSettings()),
        sampling + "validation preset evaluate eval-length eval-memory eval-stride eval-clamp "
                   "eval-batch eval-same-length validation-tokens prompt"}},
      {"lra",
       {settings_to_metadata(LraSettings()),
        "validation test small write-data validation-examples evaluate"}},
      {"train_chorales",
       {settings_to_metadata(ChoraleSettings()), sampling + "prime final-stride"}},
      {"harmonize", {settings_to_metadata(HarmonySettings()), "beam pieces"}},
      {"train_music",
       {settings_to_metadata(PianoSettings()),
        sampling + "split every preset evaluate eval-length eval-windows eval-batch "
                   "validation-windows picture-layers picture-heads picture-length bars grammar"}},
      {"groove",
       {settings_to_metadata(GrooveSettings()),
        "published evaluate prompts prompt prompt-bars continuations tokens temperature "
        "published-shifts compare published-onsets"}}};
  for (const Tiny& tiny : programs()) {
    const Options& options = own[tiny.name];
    INFO(tiny.name);
    const Ended ended = run(tiny.path(), {"--help"});
    CHECK(ended.status == 0);
    CHECK(ended.err.empty());
    Arguments names = words(options.others +
                            " data out resume overwrite minutes threads device save-every "
                            "evaluate-every anomaly parameters help micro-batches cuda-graph "
                            "shard-optimizer matmul-precision");
    for (const auto& [setting, value] : options.settings) {
      names.push_back(setting);
      std::replace(names.back().begin(), names.back().end(), '_', '-');
    }
    for (const std::string& name : names) CHECK_THAT(ended.out, Containing("--" + name + " "));
    std::istringstream lines(ended.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("  --") != 0) continue;
      INFO(line);
      std::string description = line;  // a long option has it on the next line
      if (line.size() <= 33 || line[31] != ' ') std::getline(lines, description);
      CHECK((description.size() > 33 && description[31] == ' '));
    }
  }
}

TEST_CASE("--parameters prints the number of parameters and writes nothing", "[examples]") {
  // train_chorales: embedding and output for all tokens, 4 layers with attention without biases,
  // and relative tables of 512 rows for 4 heads of dimension 32. harmonize: an embedding and an
  // output layer, 3 attention layers, 2 feed-forward layers, 5 + 2 norms, and tables.
  const auto layer = [](int64_t d, int64_t hidden) {
    return 4 * d * d + 2 * d * hidden + hidden + d + 4 * d;
  };
  const int64_t chorales = 2 * chorale_vocabulary * 128 + 4 * layer(128, 512) + 2 * 128,
                groove = 2 * groove_vocabulary * 128 + 4 * layer(128, 512) + 2 * 128,
                harmony = 2 * chorale_vocabulary * 16 + 3 * 4 * 16 * 16 +
                          2 * (2 * 16 * 32 + 32 + 16) + 7 * 2 * 16;
  const std::string tiny = "--layers 1 --heads 2 --d-model 16 --d-hidden 32 --length 8 ";
  struct Count {
    std::string program, arguments;
    int64_t parameters;
  };
  std::vector<Count> all{
      {"train_chorales", "", chorales + 4 * 4 * 512 * 32},
      {"train_chorales", "--position sinusoid", chorales},
      {"harmonize", tiny + "--position none", harmony},
      {"harmonize", tiny + "--position sinusoid+music", harmony + (15 + 24) * 16},
      {"groove", "--position none", groove},
      {"groove", "", groove + 4 * 512 * 128},
      // Liutkus et al. 2021
      {"groove", "--published", 76471066},
      {"groove", "--published --position sine", 76495642},
      {"groove", "--published --position sine-ungated", 76483354},
      {"groove", "--published --position conv", 76614426},
      {"groove", "--published --position conv-ungated", 76602138},
      {"train_music", "--preset published", 75998541},
      {"train_music", "--preset published --position none", 75998541},
      {"train_music", "--preset published --tokens performance", 76056966},
      {"train_music", "--preset published --position sine", 76018509},
      {"train_music", "--preset published --position sine-ungated", 76006221},
      {"train_music", "--preset published --position conv", 76141901},
      {"train_music", "--preset published --position conv-ungated", 76522829},
      {"train_music", "--preset published --position conv-ungated --taps 128", 76129613},
      // Dai et al. 2019
      {"train_lm", "--preset enwik8-12l", 41055436},
      {"train_lm", "--preset enwik8-12l --layers 11", 37642956},
      {"train_lm", "--preset text8-12l", 40964635},
      {"train_lm", "--preset enwik8-24l", 277231820},
      {"train_lm", "--preset wt103-base", 151107538},
      {"train_lm", "--preset wt103-base --untied-biases", 151119838},
      // Tay et al. 2021, and table 3 of Liutkus et al. 2021
      {"lra", "--task listops", 19983370},
      {"lra", "--task image --position none", 117258},
      {"lra", "--task image --position sinusoid", 117258},
      {"lra", "--task image --position learned", 248458}};
  const std::vector<std::tuple<std::string, int64_t, int64_t, int64_t>> arena{
      {"listops --strip-brackets", 19982858, 20078090, 20117002},
      {"text", 3486722, 3518466, 3553282},
      {"retrieval", 1087618, 1103490, 1120898},
      {"image", 248458, 119242, 133706}};
  for (const auto& [task, plain, sine, conv] : arena) {
    all.push_back({"lra", "--task " + task, plain});
    for (const char* attention : {"performer", "linear-relu", "linear-elu"})
      all.push_back({"lra", "--task " + task + " --attention " + attention, plain});
    all.push_back({"lra", "--attention performer --position sine --task " + task, sine});
    all.push_back({"lra", "--attention performer --position conv --task " + task, conv});
  }
  const TempDir folder;
  for (const Count& count : all) {
    if (find_program(count.program).empty()) continue;
    INFO(count.program << " " << count.arguments);
    const Ended ended =
        run(find_program(count.program),
            words("--parameters --out " + folder.file("out") + " " + count.arguments));
    CHECK(ended.status == 0);
    CHECK(ended.err.empty());
    CHECK(("\n" + ended.out).ends_with("\n" + std::to_string(count.parameters) + "\n"));
  }
  CHECK(contents(folder.str()).empty());
}

TEST_CASE("programs generate their own data, and --minutes limits the time", "[examples]") {
  for (const Tiny& tiny : programs()) {
    INFO(tiny.name);
    const TempDir folder;
    Arguments arguments = tiny.command(folder.file("out"), {"--minutes", "0.005"});
    const auto steps = std::find(arguments.begin(), arguments.end(), "--steps");
    arguments.erase(steps, steps + 2);
    const Ended ended = run(tiny.path(), arguments);
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK_THAT(ended.out, Containing("Generated "));
    CHECK(ended.seconds < 60);
  }
}

TEST_CASE("a stopped run resumes bit-identically", "[examples]") {
  std::vector<std::pair<Tiny, Arguments>> all;
  for (const Tiny& tiny : programs()) all.push_back({tiny, {}});
  for (const char* memory : {"0", "24"})
    all.push_back({lm, {"--preset", "nano", "--memory", memory}});
  for (const char* position : {"sine", "conv"})
    all.push_back({tiny_program("train_music"),
                   {"--position", position, "--realizations", "8", "--taps", "9"}});
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [tiny, more] = all[i];
    if (tiny.path().empty()) continue;
    const int signal = std::array{SIGINT, SIGTERM, SIGHUP}[i % 3];
    INFO(tiny.name << " " << joined(more));
    const TempDir folder;
    const std::string whole = folder.file("whole"), out = folder.file("out");
    const auto command = [&, &program = tiny, &options = more](const std::string& to,
                                                               const Arguments& last = {}) {
      Arguments longer = words("--steps 1000 --save-every 300 --evaluate-every 100");
      longer.insert(longer.end(), options.begin(), options.end());
      longer.insert(longer.end(), last.begin(), last.end());
      return program.command(to, longer);
    };
    REQUIRE(run(tiny.path(), command(whole)).status == 0);
    {
      Program running(tiny.path(), command(out));
      REQUIRE(running.wait_for("step 100:"));
      running.signal(signal);
      const Ended ended = running.wait();
      INFO(ended.err << ended.out);
      CHECK(ended.status == 128 + signal);
      CHECK(ended.complaint() == "Stopping after this step; Ctrl-C now stops at once.");
      CHECK_THAT(ended.out, Containing("\nStopped at step ") &&
                                Containing(". To resume, repeat the command with --resume " + out +
                                           checkpoint + "\n"));
    }
    CHECK(read_file(out + checkpoint) != read_file(whole + checkpoint));
    REQUIRE(run(tiny.path(), command(out, {"--resume", out + checkpoint})).status == 0);
    CHECK(read_file(out + checkpoint) == read_file(whole + checkpoint));
    // The metrics of both parts together are those of the whole run.
    CHECK(measured(out) == measured(whole));
  }
}

TEST_CASE("shared options are checked by every program, in one line", "[examples]") {
  for (const Tiny& tiny : programs()) {
    const TempDir folder;
    const std::string out = folder.file("out"), held = out + checkpoint;
    REQUIRE(run(tiny.path(), tiny.command(out, {"--steps", "3"})).status == 0);
    const auto has = [&](const std::string& value) {
      return ": the run of " + held + " has " + value + "; it can only be resumed with that";
    };
    std::vector<Refusal> refusals{
        {{"--heads", "3"}, "--d-model 16 is not a multiple of --heads 3; set --d-head"},
        {{"--layers", "0"}, "--layers 0: accepted values are 1 to 1000"},
        {{"--redraw", "-1"}, "--redraw -1: accepted values are 0 to 9223372036854775807"},
        {{"--realizations", "0"}, "--realizations 0: accepted values are 1 to 65536"},
        {{"--sines", "65537"}, "--sines 65537: accepted values are 1 to 65536"},
        {{"--taps", "0"}, "--taps 0: accepted values are 1 to 1048576"},
        {{"--batch", "0"}, "--batch 0: accepted values are 1 to 1048576"},
        {{"--dropout", "1"}, "--dropout 1: must be at least 0 and below 1"},
        {{"--max-grad-norm", "nan"}, "--max-grad-norm nan: must be above 0"},
        {{"--attention", "none"},
         "--attention none: accepted values are " + joined(stretto::nn::kernel_names())},
        {{"--minutes", "1"}, "--minutes: this run takes 40 steps, set by --steps"},
        {{"--device", "tpu"}, "[Device] \"tpu\" is not a device; accepted: cpu, cuda, cuda:N"},
        {{"--steps", "3", "--resume", held, "--layers", "2"}, "--layers 2" + has("1")},
        {{"--steps", "3", "--resume", held, "--seed", "5"}, "--seed 5" + has("1")},
        {{"--steps", "2", "--resume", held},
         "--steps 2: the run of " + held + " has already taken 3"}};
    if (can_evaluate(tiny)) refusals.push_back({{"--evaluate"}, "--evaluate: needs --resume FILE"});
    const auto before = contents(folder.str());
    for (const Refusal& refusal : refusals) {
      Arguments arguments = refusal.arguments;
      arguments.emplace_back("--overwrite");
      const Ended ended = run(tiny.path(), tiny.command(out, arguments));
      INFO(ended.err);
      CHECK(ended.status == 2);
      CHECK(ended.out.empty());
      CHECK(ended.err == tiny.name + ": " + refusal.expected + "\n");
    }
    CHECK(contents(folder.str()) == before);
  }
}
