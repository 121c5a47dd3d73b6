#include "benchmarks/position_study/task.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>

#include "core/digest.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/common/command_line.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/lra/text.h"
#include "examples/piano/crops.h"
#include "examples/training/output_folder.h"
#include "nn/data/crops.h"
#include "nn/data/draws.h"
#include "ops/create.h"

namespace stretto::study {
namespace {

namespace fs = std::filesystem;

constexpr int64_t window_count = 64;         // windows of 4 · L tokens that are scored
constexpr int64_t reviews_scored = 1000;     // reviews that are scored
constexpr int64_t copies_scored = 64;        // generated sequences that are scored
constexpr int64_t tokens_at_once = 1 << 13;  // tokens per batch of a test

const music::Tokenizer& remi() {
  static const auto tokens = music::tokenizer("remi");
  return *tokens;
}

// At most `most` windows of `length` + 1 tokens, evenly spaced over all windows of the pieces.
std::vector<std::vector<int64_t>> windows_of(const std::vector<std::vector<int64_t>>& pieces,
                                             int64_t length, int64_t most) {
  std::vector<std::vector<int64_t>> all;
  for (const std::vector<int64_t>& piece : pieces)
    for (size_t at = 0; at + size_t(length) + 1 <= piece.size(); at += size_t(length))
      all.emplace_back(piece.begin() + int64_t(at), piece.begin() + int64_t(at) + length + 1);
  if (int64_t(all.size()) <= most) return all;
  std::vector<std::vector<int64_t>> some;
  for (int64_t i = 0; i < most; ++i) some.push_back(all[size_t(i * int64_t(all.size()) / most)]);
  return some;
}

// A language task whose held-out tokens are windows of 4 · L tokens, each cut into 4, 2 or 1 parts.
class WindowTask : public Task {
 public:
  WindowTask(TaskInfo task_info, const std::vector<std::vector<int64_t>>& held)
      : Task(std::move(task_info)), windows_(windows_of(held, 4 * info.length, window_count)) {
    examples::require(!windows_.empty(), info.file + ": has no held-out piece of more than " +
                                             std::to_string(4 * info.length) + " tokens");
  }
  std::vector<nn::Batch> held_out(int64_t factor) const override {
    const int64_t n = factor * info.length;
    std::vector<nn::Batch> batches;
    std::vector<std::vector<int64_t>> rows;
    const auto flush = [&] {
      if (!rows.empty()) batches.push_back(nn::next_token_batch(rows));
      rows.clear();
    };
    for (const std::vector<int64_t>& window : windows_)
      for (int64_t at = 0; at < 4 * info.length; at += n) {
        rows.emplace_back(window.begin() + at, window.begin() + at + n + 1);
        if (int64_t(rows.size()) * n >= tokens_at_once) flush();
      }
    flush();
    return batches;
  }

 private:
  std::vector<std::vector<int64_t>> windows_;
};

// Bytes of a text: the first 90 % for training.
class TextTask : public WindowTask {
 public:
  TextTask(TaskInfo task_info, const std::string& text)
      : WindowTask(std::move(task_info), {bytes_of(text.substr(cut(text)))}),
        train_(bytes_of(text.substr(0, cut(text)))) {}
  nn::Batch training(uint64_t seed, int64_t step) const override {
    return nn::RandomCrops(train_, info.batch, info.length, seed)(step);
  }
  nn::TokenStream stream() const override { return train_; }

 private:
  static size_t cut(const std::string& text) { return text.size() / 10 * 9; }
  static std::vector<int64_t> bytes_of(const std::string& text) {
    std::vector<int64_t> ids;
    for (const char c : text) ids.push_back(uint8_t(c));
    return ids;
  }

  nn::TokenStream train_;
};

class ChoraleTask : public WindowTask {
 public:
  ChoraleTask(TaskInfo task_info, examples::ChoraleSet set)
      : WindowTask(std::move(task_info), tokens_of(set.valid)), train_(std::move(set.train)) {}
  nn::Batch training(uint64_t seed, int64_t step) const override {
    return training_batch(train_, {.batch = info.batch, .length = info.length}, seed, step);
  }

 private:
  // With the start token, so that position p predicts voice p mod 4 as in training.
  static std::vector<std::vector<int64_t>> tokens_of(const std::vector<examples::Chorale>& set) {
    std::vector<std::vector<int64_t>> all;
    for (const examples::Chorale& piece : set) {
      all.push_back(examples::to_tokens(piece));
      all.back().insert(all.back().begin(), examples::start_token);
    }
    return all;
  }

  std::vector<examples::Chorale> train_;
};

class PianoTask : public WindowTask {
 public:
  PianoTask(TaskInfo task_info, examples::PianoLibrary library)
      : WindowTask(std::move(task_info), tokens_of(library.valid)),
        train_(std::move(library.train)) {}
  // Crops begin anywhere, as test windows do.
  nn::Batch training(uint64_t seed, int64_t step) const override {
    return training_batch(train_, remi(),
                          {.batch = info.batch, .length = info.length, .from_bar = false}, seed,
                          step);
  }

 private:
  static std::vector<std::vector<int64_t>> tokens_of(const std::vector<examples::PianoPiece>& set) {
    std::vector<std::vector<int64_t>> all;
    for (const examples::PianoPiece& piece : set) all.push_back(piece.tokens.read());
    return all;
  }

  std::vector<examples::PianoPiece> train_;
};

// Copying with known answers: p different tokens in random order, repeated up to the end of the
// sequence. All tokens after the first p are to be predicted. p is random in L / 8 … L / 2 for
// sequences of L tokens, so that the answer is found by content (the token after the last occurrence
// of the current one) and not at a fixed distance; in longer sequences the distances are larger.
class CopyTask : public Task {
 public:
  using Task::Task;
  nn::Batch training(uint64_t seed, int64_t step) const override {
    return batch(seed, step, info.batch, info.length);
  }
  std::vector<nn::Batch> held_out(int64_t factor) const override {
    const int64_t n = factor * info.length, rows = std::max<int64_t>(1, tokens_at_once / n);
    std::vector<nn::Batch> batches;
    for (int64_t at = 0; at < copies_scored; at += rows)
      batches.push_back(batch(~uint64_t(factor), at, std::min(rows, copies_scored - at), n));
    return batches;
  }

 private:
  nn::Batch batch(uint64_t seed, int64_t step, int64_t rows, int64_t length) const {
    nn::Draws draws(seed ^ 0x636f7079ull, step);
    std::vector<int64_t> inputs(size_t(rows * length)), targets(inputs.size(), nn::ignore_index);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t period = length / 8 + draws.below(length / 2 - length / 8 + 1);
      const std::vector<int64_t> tokens = choose(draws, info.vocabulary, period);
      for (int64_t i = 0; i < length; ++i) {
        inputs[size_t(row * length + i)] = tokens[size_t(i % period)];
        if (i + 1 >= period) targets[size_t(row * length + i)] = tokens[size_t((i + 1) % period)];
      }
    }
    return {tensor(inputs, {rows, length}), tensor(targets, {rows, length})};
  }
  // `count` different numbers below n, in random order.
  static std::vector<int64_t> choose(nn::Draws& draws, int64_t n, int64_t count) {
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), int64_t(0));
    for (int64_t i = 0; i < count; ++i)
      std::swap(all[size_t(i)], all[size_t(i + draws.below(n - i))]);
    all.resize(size_t(count));
    return all;
  }
};

// Reviews as bytes, to be classified as positive or negative. In training each is cut to a random
// length of L / 4 … L and padded to L; in tests to the tested length.
class ReviewTask : public Task {
 public:
  ReviewTask(TaskInfo task_info, examples::LabeledSequences train, examples::LabeledSequences test)
      : Task(std::move(task_info)), train_(std::move(train)), test_(std::move(test)) {}
  nn::Batch training(uint64_t seed, int64_t step) const override {
    nn::Draws draws(seed ^ 0x72657669657773ull, step);
    std::vector<std::vector<int64_t>> rows;
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < info.batch; ++i) {
      const int64_t row = draws.below(train_.size());
      const int64_t most = info.length / 4 + draws.below(info.length - info.length / 4 + 1);
      rows.push_back(cut(train_, row, most));
      labels.push_back(train_.labels[size_t(row)]);
    }
    return nn::classification_batch(rows, labels, info.length);
  }
  std::vector<nn::Batch> held_out(int64_t factor) const override {
    const int64_t n = factor * info.length, at_once = std::max<int64_t>(1, tokens_at_once / n);
    const int64_t count = std::min(reviews_scored, test_.size());
    std::vector<nn::Batch> batches;
    for (int64_t first = 0; first < count; first += at_once) {
      std::vector<std::vector<int64_t>> rows;
      std::vector<int64_t> labels;
      for (int64_t row = first; row < std::min(count, first + at_once); ++row) {
        rows.push_back(cut(test_, row, n));
        labels.push_back(test_.labels[size_t(row)]);
      }
      batches.push_back(nn::classification_batch(rows, labels, n));
    }
    return batches;
  }

 private:
  static std::vector<int64_t> cut(const examples::LabeledSequences& data, int64_t row,
                                  int64_t most) {
    const uint16_t* const ids = data.sequences[row];
    return {ids, ids + std::min(most, data.sequences.length(row))};
  }

  examples::LabeledSequences train_, test_;
};

// A locked temporary folder. The constructor removes the folders that killed processes left. A
// folder gets a name that other processes look for only when it is locked.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const fs::path all = fs::temp_directory_path();
    const std::string prefix = "stretto-position_study-";
    for (const fs::directory_entry& entry : fs::directory_iterator(all))
      if (entry.path().filename().string().starts_with(prefix)) remove_unlocked(entry.path());
    std::string made = (all / "stretto-XXXXXX").string();
    examples::require(::mkdtemp(made.data()) != nullptr, all.string() + ": cannot make a folder");
    lock_.emplace(made);
    path = all / (prefix + made.substr(made.size() - 6));
    fs::rename(made, path);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  fs::path path;

 private:
  // A folder without the lock file of a killed process belongs to somebody else.
  static void remove_unlocked(const fs::path& left) {
    std::error_code none;
    if (!fs::exists(left / ".lock", none)) return;
    try {
      const examples::FolderLock lock(left.string());
      std::error_code ignored;
      fs::remove_all(left, ignored);
    } catch (const examples::UsageError&) {  // another process uses it
    }
  }

  std::optional<examples::FolderLock> lock_;
};

std::unique_ptr<Task> load_piano(const TaskInfo& info, const fs::path& archive) {
  const TemporaryFolder unpacked;
  const std::string command = "tar -xzf " + examples::quoted(archive.string()) + " -C " +
                              examples::quoted(unpacked.path.string());
  examples::require(std::system(command.c_str()) == 0, archive.string() + ": tar cannot unpack it");
  const fs::path table = fs::path(archive).replace_extension().replace_extension(".tsv");
  return std::make_unique<PianoTask>(
      info, examples::read_library(
                {.folder = (unpacked.path / "pop909").string(), .split = table.string()}, remi()));
}

std::unique_ptr<Task> load_reviews(const TaskInfo& info, const fs::path& train) {
  const fs::path test = train.parent_path() / "imdb.small.test.tsv";
  return std::make_unique<ReviewTask>(info, examples::read_reviews(train.string(), info.length),
                                      examples::read_reviews(test.string(), 4 * info.length));
}

}  // namespace

std::string Task::fingerprint() const {
  Digest digest;
  std::vector<nn::Batch> batches = held_out(4);
  batches.push_back(training(1, 0));
  for (const nn::Batch& batch : batches)
    for (const Tensor& x : {batch.inputs, batch.targets})
      for (const int64_t token : x.to_vector<int64_t>()) digest.add(token);
  return digest.text();
}

const std::vector<TaskInfo>& tasks() {
  static const std::vector<TaskInfo> all{
      {.name = "text",
       .title = "bytes of enwik8",
       .file = "text/enwik8.first4M.xml",
       .vocabulary = 256,
       .length = 128,
       .batch = 16,
       .steps = 500,
       .lr = 3e-3,
       .stream = true},
      {.name = "chorales",
       .title = "Bach chorales",
       .file = "jsb/Jsb16thSeparated.json",
       .vocabulary = examples::chorale_vocabulary,
       .length = 128,
       .batch = 16,
       .steps = 500,
       .lr = 3e-3},
      {.name = "piano",
       .title = "POP909 as REMI tokens",
       .file = "midi/pop909.tar.gz",
       .vocabulary = remi().size(),
       .length = 128,
       .batch = 16,
       .steps = 500,
       .lr = 3e-3},
      {.name = "copy",
       .title = "copying",
       .vocabulary = 128,
       .length = 64,
       .batch = 32,
       .steps = 1000,
       .lr = 3e-3,
       .accuracy = true},
      {.name = "reviews",
       .title = "IMDB reviews as bytes",
       .file = "lra/imdb.small.train.tsv",
       .vocabulary = examples::byte_vocabulary,
       .length = 128,
       .batch = 16,
       .steps = 1000,
       .lr = 3e-3,
       .classifies = true,
       .accuracy = true},
  };
  return all;
}

bool has_data(const TaskInfo& info, const std::string& folder) {
  return info.file.empty() || fs::exists(fs::path(folder) / info.file);
}

std::unique_ptr<Task> load(const TaskInfo& info, const std::string& folder) {
  const fs::path path = fs::path(folder) / info.file;
  if (info.name == "text")
    return std::make_unique<TextTask>(info, examples::read_whole_file(path.string()));
  if (info.name == "chorales")
    return std::make_unique<ChoraleTask>(info, examples::load_chorales(path.string()));
  if (info.name == "piano") return load_piano(info, path);
  if (info.name == "reviews") return load_reviews(info, path);
  return std::make_unique<CopyTask>(info);
}

}  // namespace stretto::study
