#include "examples/published/model_options.h"

#include <CLI/CLI.hpp>

#include "core/parallel.h"
#include "examples/common/error.h"
#include "examples/common/settings.h"
#include "nn/training/device_config.h"
#include "pretrained/lora.h"

namespace stretto::examples {

void declare_model(CLI::App& app, ModelOptions& o) {
  app.add_option("model", o.path, model_help)->option_text("MODEL")->required();
  app.add_option("--device", o.device, "Device: cpu, cuda or cuda:N")->capture_default_str();
  app.add_option(
         "--dtype", o.dtype,
         "Dtype of weights and activations: f32, or bf16 with half the memory, and more speed on a "
         "processor or GPU with products of bf16")
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Number of threads (0: all cores)")->capture_default_str();
}

void declare_language_model(CLI::App& app, ModelOptions& o) {
  declare_model(app, o);
  app.add_option("--adapter", o.adapter,
                 "Folder of a LoRA adapter in PEFT's format, as written by finetune")
      ->option_text("FOLDER");
}

nn::PretrainedOptions pretrained_options(const ModelOptions& o) {
  one_of({"bf16", "f32"})("--dtype", o.dtype);
  between(0, 1024)("--threads", o.threads);
  if (o.threads > 0) set_num_threads(int(o.threads));
  return {.dtype = o.dtype == "bf16" ? bf16 : f32,
          .device = as_usage([&] { return nn::take_device("--device", o.device); })};
}

nn::Pretrained load_language_model(const std::string& path, const nn::PretrainedOptions& options) {
  nn::Pretrained p = as_usage([&] { return nn::load_pretrained(path, options); });
  require(dynamic_cast<nn::LanguageModel*>(p.model.get()) != nullptr,
          path + ": a " + p.model_type + " model does not generate text");
  require(p.tokenizer.has_value(), path + ": has no tokenizer");
  return p;
}

nn::Pretrained load_language_model(const ModelOptions& o) {
  nn::Pretrained p = load_language_model(o.path, pretrained_options(o));
  if (!o.adapter.empty()) as_usage([&] { return nn::load_lora(o.adapter, *p.model, p.names); });
  return p;
}

}  // namespace stretto::examples
