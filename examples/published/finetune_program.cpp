#include "examples/published/finetune_program.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "core/digest.h"
#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/words.h"
#include "examples/published/model_options.h"
#include "nn/training/evaluate.h"
#include "nn/training/progress.h"
#include "ops/loss.h"
#include "pretrained/lora.h"

namespace stretto::examples {
namespace {

constexpr const char* frozen_note = "frozen_weights";
constexpr const char* before_note = "validation_before";
constexpr const char* merge_note = "merge";
constexpr const char* gguf_name = "model.gguf";

std::string perplexity(double nats) { return fixed(std::exp(nats), 2); }

}  // namespace

void FinetuneProgram::declare(OptionList& options) {
  options.positional("model", model_path_, model_help, "MODEL");
  options.input("data", data_, "The text to learn, in UTF-8; this or --conversations is needed");
  options.input("conversations", conversations_,
                "The conversations to learn: JSON lines with \"messages\", each with \"role\" and "
                "\"content\"; the loss is that of the assistant's messages");
  options.input(
      "validation", validation_,
      "Validation data of the same form; all of the other file is then used for training");
  options.settings(settings, "validation_tokens");
  run_.declare(options);
  options.settings(settings);
  options.describe("learning_rate", "Peak learning rate (--full: 5e-05 if not given)");
  options("merge", merge_,
          "Write the model with the adapters merged into its weights, instead of the adapters");
  options(
      "gguf", gguf_,
      "With --merge or --full: also write the model as model.gguf, for llama.cpp, with matrices "
      "of this type: f32, f16, bf16 or q8_0",
      one_of({"", "bf16", "f16", "f32", "q8_0"}));
}

void FinetuneProgram::resolve() {
  require(data_.empty() != conversations_.empty(),
          data_.empty() ? "--data: a text is needed, or conversations by --conversations"
                        : "--conversations: only without --data");
  nn::Metadata preset;
  if (settings.full) preset["learning_rate"] = "5e-05";
  take_preset(settings, preset, run_);
  if (!run_.resume.empty()) {
    take_saved(settings, saved_settings<FinetuneSettings>(run_, "finetune"), run_);
    merge_ = merge_ || run_.checkpoint().metadata().contains(merge_note);
  }
  settings.check();
  require(gguf_.empty() || settings.full || merge_, "--gguf: needs --merge or --full");
  require(settings.full || settings.optimizer == "adamw",
          "--optimizer " + settings.optimizer + ": needs --full; adapters are trained by adamw");
  if (!settings.full) return;
  const auto refuse = [&](const std::string& option) {
    require(!run_.given(option), option + ": needs adapters, but --full trains all weights");
  };
  FinetuneSettings::each_of_adapters(
      settings, [&](const char* name, const auto&...) { refuse(option_of(name)); });
  refuse("--merge");
}

// Loads the model, which limits the length, and adds the adapters, whose initial values depend only
// on the seed.
void FinetuneProgram::open_model() {
  FinetuneSettings& s = settings;
  pretrained_ = std::make_shared<nn::Pretrained>(
      load_language_model(model_path_, {.dtype = s.weights(), .device = cpu}));
  nn::Module& model = *pretrained_->model;
  const int64_t longest = pretrained_->max_length;
  if (longest > 0 && !run_.given("--length")) s.length = std::min(s.length, longest);
  require(longest == 0 || s.length <= longest, "--length " + as_text(s.length) +
                                                   ": the model was trained on " +
                                                   as_text(longest) + " tokens");
  const nn::PretrainedFiles& files = pretrained_->files;
  require((!s.full && !merge_) || (files.obstacle.empty() && !files.config.empty()),
          std::string(s.full ? "--full" : "--merge") + ": a config.json cannot describe " +
              model_path_ + (files.obstacle.empty() ? "" : ": " + files.obstacle));
  model.train();
  manual_seed(s.seed);
  if (s.full) return;
  const auto targets = fields_of(s.targets, ',');
  try {
    n_adapters_ = int64_t(nn::add_lora(model, {.rank = s.rank,
                                               .alpha = s.alpha,
                                               .dropout = s.lora_dropout,
                                               .targets = {targets.begin(), targets.end()}})
                              .size());
    nn::peft_tensors(model, pretrained_->names);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    throw UsageError("--targets " + s.targets + ": " + plain(e));
  }
}

std::vector<nn::NamedTensor> FinetuneProgram::frozen() const {
  std::vector<nn::NamedTensor> all = pretrained_->model->named_parameters();
  std::erase_if(all, [](const nn::NamedTensor& p) { return p.tensor.requires_grad(); });
  return all;
}

int64_t FinetuneProgram::count_trained() const {
  int64_t n = pretrained_->model->parameter_count();
  for (const nn::NamedTensor& p : frozen()) n -= p.tensor.numel();
  return n;
}

int64_t FinetuneProgram::count_parameters() {
  open_model();
  if (!settings.full) std::cout << counted(n_adapters_, "adapter") << "\n";
  return count_trained();
}

void FinetuneProgram::prepare() {
  const FinetuneSettings& s = settings;
  use_device(s.steps, 0);
  open_model();
  learned_ = read_finetune_data(
      {.text = data_,
       .conversations = conversations_,
       .validation = validation_,
       .held_out = s.held_out,
       .most_scored = s.validation_tokens},
      {.batch = s.batch, .length = s.length, .same_length = run_.cuda_graph, .seed = s.seed},
      *pretrained_);
  Digest data, weights;
  learned_->add_to(data);
  for (const nn::NamedTensor& p : frozen()) {
    const Tensor values = p.tensor.to(Device()).contiguous();
    weights.add(values.raw_data(), values.numel() * item_size(values.dtype()));
  }
  frozen_digest_ = weights.text();
  use_model(std::shared_ptr<nn::Module>(pretrained_, pretrained_->model.get()), s);
  make_trainer(optimizer(vaswani_adam(s.weight_decay)), schedule_of(s),
               {data.text(), "data than those of --data, --conversations and --validation"},
               s.batch * s.length);
  curve_ = {.title = "Loss of fine-tuning"};
  // All of them: a run that replaces one with other options removes the files that it does not write.
  files_ = nn::pretrained_files();
  files_.insert(files_.end(), {"adapter_config.json", "adapter_model.safetensors", gguf_name});
}

void FinetuneProgram::begin() {
  std::cout << "Read " << learned_->sizes() << ". " << pretrained_->model_type << ", "
            << model_and_machine() << std::endl;
  std::cout << "Trains " << counted(count_trained(), "parameter");
  if (!settings.full)
    std::cout << " of " << counted(n_adapters_, "adapter") << ", rank " << settings.rank;
  std::cout << std::endl;
  if (!before_) before_ = validate();
  std::cout << "Perplexity before: " << perplexity(*before_) << std::endl;
  curve_.references = {{"before", *before_}};
}

Tensor FinetuneProgram::loss(int64_t step) {
  const nn::Batch batch =
      trainer().stage_batch(step, [this](int64_t i) { return learned_->batch(i); });
  return cross_entropy(pretrained_->language_model()(batch.inputs).to(f32), batch.targets);
}

double FinetuneProgram::validate() {
  const nn::LanguageModel& model = pretrained_->language_model();
  return nn::mean_loss(
      *pretrained_->model, [&](const Tensor& inputs) { return model(inputs).to(f32); },
      [&](const std::function<void(const nn::Batch&)>& score) {
        learned_->score(settings.batch / trainer().n_micro_batches(), [&](const nn::Batch& batch) {
          check_interrupt();
          score(batch);
        });
      });
}

std::string FinetuneProgram::annotation(double validation) const {
  return ", perplexity " + perplexity(validation) + TrainingProgram::annotation(validation);
}

void FinetuneProgram::report() {
  std::cout << saved() << ", " << nn::duration_text(trainer().seconds()) << std::endl;
  const auto& last = trainer().evaluation();
  const double after = last && last->step == step() ? last->validation : validate();
  ReportTable table{
      "Validation perplexity, " + counted(learned_->scored(), "token"), {"", "perplexity"}, {}};
  std::cout << table.title << ":\n";
  add_row(table, 10, "before", perplexity(*before_));
  add_row(table, 10, "after", perplexity(after));
  show(std::move(table));
  draw_curve();
  save_model();
}

void FinetuneProgram::save_model() {
  nn::Module& model = *pretrained_->model;
  const std::string folder =
      std::filesystem::path(path("adapter_model.safetensors")).parent_path().string();
  const std::string written = examples::quoted(run_.out);
  if (!settings.full && !merge_) {
    nn::save_lora(folder, model, pretrained_->names, model_path_);
    std::cout << "Wrote the adapters; chat " << examples::quoted(model_path_) << " --adapter "
              << written << " uses them" << std::endl;
    return;
  }
  if (merge_) nn::merge_lora(model);
  nn::save_pretrained(folder, *pretrained_);
  if (!gguf_.empty())
    nn::save_gguf(folder + "/" + gguf_name, *pretrained_, nn::gguf_type_of(gguf_));
  std::cout << "Wrote the model; chat " << written << " opens it" << std::endl;
}

void FinetuneProgram::keep(nn::TrainingState& state) const {
  state.metadata[frozen_note] = frozen_digest_;
  if (merge_) state.metadata[merge_note] = "1";
  if (before_) state.metadata[before_note] = as_text(*before_);
}

void FinetuneProgram::take(const nn::TrainingState& state, const std::string& path) {
  const auto frozen = state.metadata.find(frozen_note), before = state.metadata.find(before_note);
  require(frozen != state.metadata.end() && frozen->second == frozen_digest_,
          path + ": was trained with other frozen weights than those of " + model_path_);
  double loss = 0;
  require(before != state.metadata.end() && read_text(before->second, loss) && std::isfinite(loss),
          path + ": its " + before_note + " is missing or malformed");
  before_ = loss;
}

}  // namespace stretto::examples
