// Continues a piece with a model of train_music, or lets the model begin one.
//
// Input: a checkpoint of train_music, or weights that --export has written; --prompt FILE, a MIDI
// file. Output, in --out DIR: the prompt and its continuations as MIDI and as piano rolls, and
// continuations.html, a page that plays them.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "core/available_memory.h"
#include "core/storage.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/words.h"
#include "examples/midi/midi_folder.h"
#include "examples/piano/piano_report.h"
#include "examples/piano/piano_settings.h"
#include "examples/piano/piano_writing.h"
#include "examples/report/report.h"
#include "examples/training/model_program.h"
#include "examples/training/output_folder.h"
#include "nn/data/crops.h"
#include "nn/files/weights.h"
#include "nn/models/generation.h"
#include "nn/training/device_config.h"
#include "nn/training/evaluate.h"

namespace stretto::examples {
namespace {

class ContinueMusic {
 public:
  ContinueMusic() { writing_.sampling = {.temperature = 1, .top_p = 0.95}; }

  void declare(OptionList& options) {
    options_ = &options;
    options.positional("model", file_, "A checkpoint of train_music, or a file of --export",
                       "MODEL");
    options.input("prompt", prompt_, "MIDI file to continue; without it, the model begins a piece");
    options("prompt_bars", prompt_bars_, "Prompt length in bars (0: the whole piece)",
            between(0, 10'000));
    options("bars", bars_, "Number of bars to add", between(1, 10'000));
    options("continuations", continuations_, "Number of continuations", between(1, 100));
    options("seed", seed_, "Seed of the sampled tokens", any_value);
    declare_sampling(options, writing_.sampling);
    options("device", device_, "Device: cpu, cuda or cuda:1", any_value);
    options("overwrite", overwrite_, "Replace files in --out that no run has made", any_value);
    options.path("export", export_, "Write settings and weights alone, in bf16, to this file",
                 "FILE");
    options.path("out", out_, "Folder for the results", "DIR");
  }

  int run() {
    load();
    if (!export_.empty()) return save();
    read_prompt();
    open_folder();
    const OutputFolder& folder = *folder_;
    nn::end_on_signal("Stopped.");
    Report page{.program = program_name(),
                .folder = out_,
                .about = counted(model_->parameter_count(), "parameter") + ", tokens " +
                         settings_.tokens + ", position " + settings_.position,
                .commands = {command_line()},
                .state = RunState::done};
    const music::Tokenizer& language = settings_.language();
    const auto write = [&](const std::string& name, const std::string& title,
                           const std::vector<int64_t>& tokens) {
      const music::Song song = language.decode(tokens);
      music::write_midi(folder.path(name + ".mid"), song);
      write_file_atomically(folder.path(name + ".svg"), song_roll(song, title));
      page.music.push_back({title, name + ".mid", song});
    };
    if (!given_.empty()) {
      const double loss = prompt_loss();
      std::cout << "Prompt: " << given_.size() << " tokens, loss " << fixed(loss, 3)
                << " nats per token" << std::endl;
      page.tables.push_back({"The prompt",
                             {"tokens", "nats per token"},
                             {{as_text(int64_t(given_.size())), fixed(loss, 3)}}});
    }
    if (language.bar < 0)
      writing_.bars = 0;
    else
      writing_.bars = bars_ + std::count(given_.begin(), given_.end(), language.bar);
    writing_.tokens = 128 * bars_;  // for tokens without bars, and bars that never end
    writing_.limit = settings_.cache_limit(settings_.positions(), 0);
    for (int64_t i = 0; i < continuations_; ++i) {
      writing_.seed = nn::prompt_seed(seed_, i);
      const std::vector<int64_t> tokens = write_piano(*model_, language, given_, writing_);
      const std::string number = as_text(i + 1);
      write("continuation_" + number, "Continuation " + number, tokens);
      std::cout << "Wrote " << folder.path("continuation_" + number + ".mid") << ": "
                << tokens.size() - given_.size() << " new tokens" << std::endl;
    }
    if (!given_.empty()) write("prompt", "The prompt", given_);
    write_file_atomically(folder.path("continuations.html"), report_page(page));
    std::cout << "Wrote " << folder.path("continuations.html") << std::endl;
    return 0;
  }

 private:
  // Reads settings and weights of one file.
  void load() {
    as_usage([&] {
      const nn::SafetensorsFile file(file_);
      settings_ = settings_from_metadata<PianoSettings>(file.metadata(), file_, "train_music");
      set_memory_limit(available_memory());
      model_.emplace(settings_.model());
      nn::load_weights(file, *model_);
      model_->to(nn::take_device("--device", device_));
    });
  }

  int save() {
    require(!std::filesystem::exists(export_), "--export: " + export_ + " exists");
    check_not_input({export_}, {"MODEL", file_});
    model_->to(Device{}).to(bf16);
    nn::Metadata notes = settings_to_metadata(settings_);
    notes["format"] = "pt";
    as_usage([&] { nn::save_weights(export_, *model_, {}, notes); });
    std::cout << "Wrote " << export_ << ": " << counted(model_->parameter_count(), "parameter")
              << ", " << std::filesystem::file_size(export_) << " bytes" << std::endl;
    return 0;
  }

  // The prompt without its end token; with --prompt-bars, only its first bars.
  void read_prompt() {
    const music::Tokenizer& language = settings_.language();
    if (prompt_.empty()) return;
    const music::MidiFile file = read_midi_file(prompt_);
    as_usage([&] { language.check_file(file, prompt_); });
    MidiDefects defects;
    defects.add(prompt_, file.warnings);
    if (defects.files() > 0) std::cout << defects.text() << std::endl;
    given_ = language.encode(file);
    std::erase(given_, language.end);
    require(prompt_bars_ == 0 || language.bar >= 0 || !options_->given("--prompt-bars"),
            "--prompt-bars: the tokens of " + file_ + " (" + settings_.tokens + ") have no bars");
    if (language.bar < 0 || prompt_bars_ == 0) return;
    auto end = given_.begin();
    for (int64_t bars = 0; end != given_.end(); ++end)
      if (*end == language.bar && ++bars > prompt_bars_) break;
    given_.erase(end, given_.end());
  }

  void open_folder() {
    check_outside_inputs(out_, options_->inputs());
    std::error_code error;
    std::filesystem::create_directories(out_, error);
    require(!error, "--out: cannot create the folder " + out_ + ": " + error.message());
    std::vector<std::string> names{"continuations.html"};
    const auto add = [&](const std::string& name) {
      names.insert(names.end(), {name + ".mid", name + ".svg"});
    };
    if (!given_.empty()) add("prompt");
    for (int64_t i = 0; i < continuations_; ++i) add("continuation_" + as_text(i + 1));
    folder_.emplace(out_);
    folder_->check(names, options_->inputs(), {}, overwrite_);
    folder_->add_made(names);
  }

  // The mean loss of each token of the prompt but the first.
  double prompt_loss() {
    const int64_t n = int64_t(given_.size());
    return n < 2 ? 0 : nn::mean_loss(*model_, std::vector{nn::next_token_batch({given_}, n - 1)});
  }

  const OptionList* options_ = nullptr;
  std::string file_, prompt_, export_, out_ = "out/continued", device_ = "cpu";
  int64_t prompt_bars_ = 8, bars_ = 16, continuations_ = 3;
  uint64_t seed_ = 1;
  bool overwrite_ = false;
  PianoWritingOptions writing_;
  PianoSettings settings_;
  std::optional<nn::LanguageModel> model_;
  std::optional<OutputFolder> folder_;
  std::vector<int64_t> given_;
};

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  return stretto::examples::run_program<stretto::examples::ContinueMusic>(
      argc, argv, "continue_music", "Continues a piece of music with a model of train_music.");
}
