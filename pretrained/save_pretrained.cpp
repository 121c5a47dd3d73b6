// Writes a model as a folder of transformers.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/one_line.h"
#include "nn/files/weights.h"
#include "pretrained/generation_config.h"
#include "pretrained/lora.h"
#include "pretrained/pretrained.h"
#include "pretrained/tokenizers/files/definition.h"

namespace stretto::nn {

namespace fs = std::filesystem;

namespace {

constexpr const char *op = "save_pretrained", *config_name = "config.json";

// A new folder inside `folder`, which is created if it does not exist. commit() moves its files to
// `folder`; without it they are removed. One left by a process that was killed is removed first.
class PartialFolder {
 public:
  explicit PartialFolder(const std::string& folder)
      : target_(fs::absolute(folder)),
        partial_(target_ / partial_folder),
        is_new_(!fs::exists(target_)) {
    check(is_new_ || fs::is_directory(target_), op, one_line(folder), ": is not a folder");
    fs::create_directories(target_);
    fs::remove_all(partial_);
    fs::create_directory(partial_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
    if (is_new_) fs::remove(target_, ignored);  // only if it is empty
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  std::string str_path() const { return partial_.string(); }
  std::string file(const char* name) const { return (partial_ / name).string(); }

  // config.json comes last: without it, the files of a process that was killed are no model.
  void commit() const {
    check_others();
    fs::remove(target_ / config_name);
    for (const fs::directory_entry& entry : fs::directory_iterator(partial_))
      if (entry.path().filename() != config_name)
        fs::rename(entry.path(), target_ / entry.path().filename());
    fs::rename(partial_ / config_name, target_ / config_name);
  }

 private:
  // Refuses files that load_pretrained() would read together with the new ones.
  void check_others() const {
    for (const std::string& name : pretrained_files())
      check(fs::exists(partial_ / name) || !fs::exists(target_ / name), op,
            one_line(target_.string()), ": has a file ", name,
            " of another model; remove it, or choose another folder");
  }

  const fs::path target_, partial_;
  const bool is_new_;
};

// Returns config.json with the dtype of the model.
std::string config_of(const Pretrained& p) {
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(p.files.config);
  const DType dtype = p.model->parameters().at(0).dtype();
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = dtype == bf16  ? "bfloat16"
                                                                     : dtype == f64 ? "float64"
                                                                                    : "float32";
  return config.dump(2) + "\n";
}

void save(const std::string& folder, const Pretrained& p) {
  const PartialFolder partial(folder);
  write_atomically(partial.file(config_name), config_of(p));
  save_weights(partial.file("model.safetensors"), *p.model, p.names);
  if (p.tokenizer) p.tokenizer->save(partial.str_path());
  if (!p.chat_template.empty())
    write_atomically(partial.file("chat_template.jinja"), p.chat_template);
  if (const std::string text = pretrained::generation_config_with(p.generation, p.files.config,
                                                                  p.files.generation_config);
      !text.empty())
    write_atomically(partial.file("generation_config.json"), text);
  partial.commit();
}

}  // namespace

std::vector<std::string> pretrained_files() {
  std::vector<std::string> names = {config_name, "model.safetensors", "chat_template.jinja",
                                    "generation_config.json"};
  names.insert(names.end(), std::begin(tokenizers::directory_files),
               std::end(tokenizers::directory_files));
  return names;
}

void save_pretrained(const std::string& folder, const Pretrained& p) {
  check(p.model != nullptr, op, one_line(folder), ": there is no model");
  check(p.files.obstacle.empty(), op, one_line(folder), ": a config.json for ", p.model_type,
        " cannot express the GGUF file: ", p.files.obstacle);
  check(!p.files.config.empty(), op, one_line(folder), ": a ", p.model_type,
        " model without a config.json");
  check(lora_parameters(*p.model).empty(), op, one_line(folder),
        ": the model has adapters; add them to the weights by merge_lora(), or save them by "
        "save_lora()");
  try {
    save(folder, p);
  } catch (const fs::filesystem_error& e) {
    fail(op, one_line(folder), ": ", e.code().message());
  }
}

}  // namespace stretto::nn
