#include "examples/chorales/harmony_program.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "examples/chorales/baselines.h"
#include "examples/chorales/chorale_program.h"
#include "examples/chorales/chorale_song.h"
#include "examples/common/error.h"
#include "nn/distributed/process_group.h"
#include "nn/models/beam_search.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"

namespace stretto::examples {

void HarmonySettings::check() const {
  check_each(*this);
  check_model();
  for (const bool encoder : {true, false}) check_position(positions(encoder));
}

nn::PositionSettings HarmonySettings::positions(bool encoder) const {
  nn::PositionSettings p = position_settings(encoder ? length : 3 * length);
  p.bidirectional = encoder;
  p.longest = 3 * length;
  return p;
}

double HarmonySettings::least_memory() const {
  return least_memory_of<nn::SequenceToSequence>(model(), double(batch) * 4 * double(length),
                                                 0.75 * chorale_vocabulary);
}

nn::SequenceToSequence::Options HarmonySettings::model() const {
  nn::SequenceToSequence::Options o{.source_vocabulary = chorale_vocabulary,
                                    .target_vocabulary = chorale_vocabulary,
                                    .n_encoder_layers = layers,
                                    .n_decoder_layers = layers,
                                    .layer = layer(),
                                    .source_step = 3,  // tokens generated per sixteenth
                                    .shared_embedding = true};
  nn::LayerOptions encoder = o.layer;
  nn::add_position(position, positions(true), encoder, o.input);
  nn::add_position(position, positions(false), o.layer, o.input);
  o.encoder_position = encoder.attention.position;
  return o;
}

HarmonyBatch harmony_batch(const nn::Batch& four_voices) {
  const int64_t b = four_voices.inputs.size(0), n = four_voices.inputs.size(1) / 4;
  // The input of each voice is the voice before it: B of the previous sixteenth, S, A, T.
  const Tensor inputs = four_voices.inputs.reshape({b, n, 4});
  const Tensor targets = four_voices.targets.reshape({b, n, 4});
  const Tensor soprano = inputs.select(2, 1).contiguous();
  return {soprano, eq(soprano, double(end_token)),
          cat({inputs.slice(2, 0, 1), inputs.slice(2, 2, 4)}, 2).reshape({b, 3 * n}),
          targets.slice(2, 1, 4).reshape({b, 3 * n})};
}

namespace {

Tensor loss_of(const nn::SequenceToSequence& model, const HarmonyBatch& b,
               CrossEntropyOptions options) {
  const Device device = model.device();
  options.ignore_index = nn::ignore_index;
  return cross_entropy(model(b.soprano.to(device), b.inputs.to(device), b.padding.to(device)),
                       b.targets.to(device), options);
}

}  // namespace

double harmony_loss(nn::SequenceToSequence& model, const std::vector<Chorale>& pieces,
                    int64_t length, int64_t stride, int64_t batch) {
  const nn::EvalMode guard(model);
  nn::EvaluationReducer sums(2);
  scoring_batches(pieces, 4 * length, 4 * stride, batch, [&](const nn::Batch& four_voices) {
    check_interrupt();
    if (!sums.next()) return;
    const HarmonyBatch b = harmony_batch(four_voices);
    nn::LossSum sum;
    sum.add(loss_of(model, b, {.reduction = Reduction::none}), b.targets);
    sums.add({sum.loss, double(sum.tokens)});
  });
  const std::vector<double> total = sums.total();
  return total[0] / total[1];
}

Chorale harmonize(nn::SequenceToSequence& model, const Chorale& melody, int64_t length,
                  int64_t beam) {
  const nn::EvalMode guard(model);
  const Device device = model.device();
  const auto total = int64_t(melody.steps.size());
  std::vector<int64_t> soprano, written = {start_token};
  for (const auto& step : melody.steps)
    soprano.push_back(step[0] < 0 ? silence_token : pitch_token + step[0]);
  for (int64_t done = 0; done < total;) {
    const int64_t first = done == 0 ? 0 : std::min(done - length / 2, total - length);
    const int64_t end = std::min(first + length, total);
    const Tensor context =
        model.encode(tensor(std::vector<int64_t>(soprano.begin() + first, soprano.begin() + end),
                            {1, end - first})
                         .to(device));
    nn::SequenceToSequence::Cache cache;
    const std::vector<nn::Hypothesis> found = nn::beam_search(
        [&](const Tensor& tokens) {
          check_interrupt();
          return model.decode(tokens.to(device), context, {}, &cache);
        },
        [&](const Tensor& rows) { cache.reorder(rows.to(device)); },
        std::vector<int64_t>(written.begin() + 3 * first, written.end()),
        {.beam = beam, .max_tokens = 3 * (end - done), .forbidden = {start_token, end_token}});
    written.insert(written.end(), found[0].tokens.begin(), found[0].tokens.end());
    done = end;
  }
  std::vector<int64_t> all;
  for (int64_t i = 0; i < total; ++i) {
    all.push_back(soprano[size_t(i)]);
    all.insert(all.end(), written.begin() + 3 * i + 1, written.begin() + 3 * i + 4);
  }
  return to_chorale(all);
}

double agreement(const Chorale& a, const Chorale& b) {
  double same = 0, count = 0;
  for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i)
    for (size_t voice = 1; voice < 4; ++voice) {
      same += a.steps[i][voice] == b.steps[i][voice];
      count += 1;
    }
  return count > 0 ? same / count : 0;
}

void HarmonyProgram::declare(OptionList& options) {
  options.input("data", data_, "Four-voice chorales as JSON; without it, chorales are generated");
  run_.declare(options);
  options.settings(settings);
  describe_position(options, settings, {settings.positions(true), settings.positions(false)});
  options.describe("batch", "Batch size: crops per step");
  options("beam", beam_, "Beam width of the search (1: greedy)", between(1, 64));
  options("pieces", n_written_, "Number of validation pieces to harmonize (0: none)",
          between(0, 1000));
}

void HarmonyProgram::prepare() {
  use_device(settings.steps, settings.least_memory());
  pieces_ = data_.empty() ? generate_chorales(settings.seed) : load_chorales(data_);
  n_written_ = std::min(n_written_, int64_t(pieces_.valid.size()));
  start(pieces_.train);
  if (data_.empty()) files_.emplace_back("chorales.json");
  for (int64_t i = 1; i <= n_written_; ++i)
    for (const char* kind : {"composed-", "harmonized-"}) list_music(kind + std::to_string(i));
}

void HarmonyProgram::start(std::vector<Chorale> pieces) {
  pieces_.train = std::move(pieces);
  create(vaswani_adam(settings.weight_decay), {fingerprint(pieces_.train), other_chorales},
         3 * settings.batch * settings.length);
}

void HarmonyProgram::begin() {
  if (data_.empty()) save_chorales(path("chorales.json"), pieces_);
  unigram_ = voice_unigram_loss(pieces_.train, pieces_.valid, 1);
  bigram_ = voice_bigram_loss(pieces_.train, pieces_.valid, 1);
  curve_ = {.title = "Loss of alto, tenor and bass, given the soprano",
            .references = {{"bigram per voice", bigram_}}};
  std::cout << (data_.empty() ? "Generated" : "Read") << " " << pieces_.train.size()
            << " chorales for training and " << pieces_.valid.size() << " for validation. Position "
            << settings.position << ", " << model_and_machine() << std::endl;
}

Tensor HarmonyProgram::loss(int64_t step) {
  const Tensors b = trainer().stage(
      step,
      [this](int64_t i) {
        const HarmonyBatch batch = harmony_batch(training_batch(
            pieces_.train, {settings.batch, 4 * settings.length, int(settings.transpose)},
            settings.seed, i));
        return Tensors{batch.soprano, batch.padding, batch.inputs, batch.targets};
      },
      3);
  return loss_of(*model, {b[0], b[1], b[2], b[3]}, {.label_smoothing = settings.label_smoothing});
}

double HarmonyProgram::validate(int64_t stride) {
  return with_context(str("validation after step ", step()), [&] {
    return harmony_loss(*model, pieces_.valid, settings.length, stride, 2 * settings.batch);
  });
}

void HarmonyProgram::report() {
  const double trained = trainer().seconds();
  std::cout << "Saved " << checkpoint_path() << "; now scoring the validation pieces" << std::endl;
  const double loss = validate(settings.length / 2);
  show_losses("Validation loss of alto, tenor and bass, nats per token",
              str(" (", step(), " steps, ", nn::duration_text(trained), ")"),
              {{"unigram per voice", unigram_}, {"bigram per voice", bigram_}, {"model", loss}});
  draw_curve();
  for (int64_t i = 1; i <= n_written_; ++i) write_music(i);
}

void HarmonyProgram::write_music(int64_t number) {
  const Chorale& composed = pieces_.valid[size_t(number - 1)];
  const Chorale found = harmonize(*model, composed, settings.length, beam_);
  const std::string n = std::to_string(number);
  std::cout << "harmonized-" << n << ": " << fixed(100 * agreement(found, composed), 1)
            << " % of the notes below the soprano are those of composed-" << n << std::endl;
  const auto write = [&](const std::string& name, const Chorale& piece, const std::string& title) {
    show_music(name, title, to_song(piece), piano_roll(piece, title));
  };
  write("composed-" + n, composed, "Validation piece " + n + ", as composed");
  write("harmonized-" + n, found,
        "Validation piece " + n + ": the soprano is given, beam " + std::to_string(beam_));
}

}  // namespace stretto::examples
