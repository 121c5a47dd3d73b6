// Vectors of sentences by a published sentence encoder.
//
// Input: MODEL, a folder of sentence-transformers; lines of text in UTF-8, from FILE or standard
// input.
// Output: --out FILE, the vectors as .npy, f32 [lines, d]; without it, the most similar pairs of lines
// on standard output: their similarity and both texts, separated by tabs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>

#include "examples/common/command_line.h"
#include "examples/common/error.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/published/model_options.h"
#include "examples/training/output_folder.h"
#include "ops/matmul.h"
#include "ops/view.h"
#include "pretrained/sentence_encoder.h"

namespace stretto::examples {
namespace {

struct Options {
  ModelOptions model;
  std::string file, out;
  int64_t batch = 32, pairs = 10;
};

void describe(CLI::App& app, Options& o) {
  declare_model(app, o.model);
  app.add_option("file", o.file, "Text, one sentence per line (default: standard input)")
      ->option_text("FILE");
  app.add_option("--out", o.out, "Write the vectors to this file, as .npy")->option_text("FILE");
  app.add_option("--batch", o.batch, "Sentences computed at a time")->capture_default_str();
  app.add_option("--pairs", o.pairs, "Without --out: number of most similar pairs to print")
      ->capture_default_str();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::string text;
  if (path.empty()) {
    std::ostringstream all;
    all << std::cin.rdbuf();
    text = all.str();
  } else {
    text = read_whole_file(path);
  }
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

// Returns the bytes of a .npy file, version 1.0, of f32 [n, d].
std::string npy(const Tensor& x) {
  std::string header = str("{'descr': '<f4', 'fortran_order': False, 'shape': (", x.size(0), ", ",
                           x.size(1), "), }");
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += char(header.size() & 255);
  bytes += char(header.size() >> 8);
  bytes += header;
  const Tensor values = x.to(f32).contiguous();
  bytes.append(static_cast<const char*>(values.raw_data()), size_t(values.numel()) * 4);
  return bytes;
}

void print_pairs(const Tensor& vectors, const std::vector<std::string>& lines, int64_t most) {
  const Tensor x = vectors.to(f32);
  const std::vector<double> product = matmul(x, x.transpose(0, 1)).to_vector<double>();
  const size_t n = lines.size();
  struct Pair {
    double similarity;
    size_t a, b;
  };
  std::vector<Pair> pairs;
  const auto length = [&](size_t i) { return std::sqrt(product[i * n + i]); };
  for (size_t a = 0; a < n; ++a)
    for (size_t b = a + 1; b < n; ++b)
      pairs.push_back({product[a * n + b] / std::max(1e-12, length(a) * length(b)), a, b});
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& p, const Pair& q) { return p.similarity > q.similarity; });
  pairs.resize(std::min(pairs.size(), size_t(most)));
  for (const Pair& p : pairs) {
    std::ostringstream value;
    value.precision(4);
    value << std::fixed << p.similarity;
    std::cout << value.str() << '\t' << printable(lines[p.a]) << '\t' << printable(lines[p.b])
              << '\n';
  }
}

int run(const Options& o) {
  between(1, 4096)("--batch", o.batch);
  between(1, 1 << 20)("--pairs", o.pairs);
  const std::vector<std::string> lines = lines_of(o.file);
  require(!lines.empty(), "no lines");
  if (!o.out.empty()) {
    const std::vector<RunInput> inputs{{"MODEL", o.model.path, true},
                                       {"FILE", o.file.empty() ? "/dev/stdin" : o.file}};
    check_outside_inputs(o.out, inputs);
    for (const RunInput& input : inputs) check_not_input({o.out}, input);
  }
  require(!o.out.empty() || lines.size() > 1,
          "one line has no pair; at least two are needed without --out");
  require(!o.out.empty() || lines.size() <= 10'000,
          as_text(int64_t(lines.size())) + " lines; at most 10000 without --out");
  const nn::PretrainedOptions options = pretrained_options(o.model);
  const auto encoder = as_usage([&] { return nn::SentenceEncoder::load(o.model.path, options); });
  const Tensor vectors = encoder.encode(lines, o.batch);
  if (o.out.empty()) {
    print_pairs(vectors, lines, o.pairs);
    return 0;
  }
  write_file_atomically(o.out, npy(vectors));
  std::cout << "Wrote " << o.out << ": " << vectors.size(0) << " vectors of " << vectors.size(1)
            << " elements" << std::endl;
  return 0;
}

}  // namespace
}  // namespace stretto::examples

int main(int argc, char** argv) {
  stretto::examples::Options options;
  return stretto::examples::run_program(
      argc, argv, "embed", "Computes vectors of sentences, or their similarities.",
      [&](CLI::App& app) { describe(app, options); }, [&] { return run(options); });
}
