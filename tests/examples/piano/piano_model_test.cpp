// The trained model of the repository, examples/models/piano.safetensors.
#include <cmath>

#include "examples/chorales/chorale.h"
#include "examples/chorales/chorale_song.h"
#include "examples/piano/library.h"
#include "examples/piano/piano_program.h"
#include "music/midi_reader.h"
#include "music/midi_writer.h"
#include "nn/data/crops.h"
#include "nn/files/weights.h"
#include "nn/training/evaluate.h"
#include "tests/support/catch.h"
#include "tests/support/data_folder.h"
#include "tests/support/find_upwards.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace stretto;            // NOLINT
using namespace stretto::examples;  // NOLINT

class PianoModel {
 public:
  explicit PianoModel(const std::string& path)
      : file_(path),
        settings(settings_from_metadata<PianoSettings>(file_.metadata(), path, "train_music")),
        model(settings.model()) {
    nn::load_weights(file_, model);
  }

 private:
  nn::SafetensorsFile file_;

 public:
  const PianoSettings settings;
  nn::LanguageModel model;
};

}  // namespace

TEST_CASE("the piano model continues a piece", "[examples]") {
  const std::filesystem::path models = testing::find_upwards("examples/models");
  if (models.empty()) STRETTO_SKIP("the model is in the source, which is not above this folder");
  const std::string path = models / "piano.safetensors";
  CHECK(std::filesystem::file_size(path) <= 8'000'000);
  PianoModel piano(path);
  const music::Tokenizer& language = piano.settings.language();
  const testing::TempDir folder;
  music::write_midi(folder.file("piece.mid"), to_song(generate_chorales(5, 1, 1, 1).train.front()));
  std::vector<int64_t> piece = language.encode(music::read_midi(folder.file("piece.mid")));
  std::erase(piece, language.end);
  const double loss = nn::mean_loss(piano.model, std::vector{nn::next_token_batch({piece})});
  CHECK(std::fabs(loss - 1.5061) < 2e-3);

  const std::vector<int64_t> prompt(piece.begin(), piece.begin() + 64);
  const PianoWritingOptions options{.tokens = 60, .sampling = {.temperature = 1, .top_p = 0.95}};
  const std::vector<int64_t> whole = write_piano(piano.model, language, prompt, options);
  CHECK(whole.size() == prompt.size() + 60);
  CHECK(whole == write_piano(piano.model, language, prompt, options));
  const double of_new = nn::mean_loss(piano.model, std::vector{nn::next_token_batch({whole})});
  CHECK(of_new < 2.5);  // the model's own music is likely; random tokens have about log 333 = 5.8
}

TEST_CASE("the piano model has the loss of its card", "[examples][data]") {
  const std::filesystem::path models = testing::find_upwards("examples/models");
  if (models.empty()) STRETTO_SKIP("the model is in the source, which is not above this folder");
  const std::string path = models / "piano.safetensors";
  const std::string packed = testing::data_path("midi/pop909.tar.gz"),
                    split = testing::data_path("midi/pop909.tsv");
  for (const std::string& needed : {packed, split}) STRETTO_NEEDS_DATA(needed);
  PianoModel piano(path);
  const music::Tokenizer& language = piano.settings.language();
  const testing::TempDir folder;
  const std::string command = "tar xzf '" + packed + "' -C '" + folder.str() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  const PianoLibrary songs =
      read_library({.folder = folder.file("pop909"), .split = split}, language);
  const std::vector<PianoWindow> all = windows(songs.test, language, 512, 16);
  const double loss = mean_of(loss_by_position(piano.model, all, 512, 4), 0, 512);
  CHECK(std::fabs(loss - 1.4374) < 2e-3);
}
