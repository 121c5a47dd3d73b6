// Time and memory of a published language model, for published_models.py: "NAME VALUE" lines.
//
//     published_models MODEL DTYPE [THREADS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "autograd/profile.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/gguf_model.h"
#include "stretto_pretrained.h"

using namespace stretto;

namespace {

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.empty() ? 0 : x[x.size() / 2];
}

// Calls f `rounds` times and returns the median of its times.
template <class F>
double time_of(int rounds, F&& f) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const double start = steady_seconds();
    f();
    times.push_back(steady_seconds() - start);
  }
  return median(times);
}

void print(const char* name, double value) { std::printf("%s %.6g\n", name, value); }

// The largest resident size of the process so far, in bytes.
double peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::atof(line.c_str() + 6);
  return 0;
}

// Reads `bytes` bytes on all threads.
void read_all(const std::vector<int64_t>& data) {
  std::vector<int64_t> sums(static_cast<size_t>(num_threads()));
  const int64_t n = int64_t(data.size()), share = n / num_threads();
  parallel_for(num_threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t sum = 0;
      for (int64_t i = t * share; i < (t + 1) * share; ++i) sum += data[size_t(i)];
      sums[size_t(t)] = sum;
    }
  });
  volatile int64_t used = 0;
  for (const int64_t sum : sums) used = used + sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: published_models MODEL DTYPE [THREADS]\n";
    return 2;
  }
  const DType dtype = std::string(argv[2]) == "bf16" ? bf16 : f32;
  if (argc > 3) set_num_threads(std::atoi(argv[3]));
  const NoGrad guard;

  const double before = peak_resident();
  {
    const nn::GgufFile file(argv[1]);
    nn::SubwordTokenizer::from_gguf(nn::pretrained::gguf_vocabulary(file));
  }
  const double with_tokenizer = peak_resident();
  print("tokenizer_resident", with_tokenizer - before);
  double start = steady_seconds();
  const nn::Pretrained p = nn::load_pretrained(argv[1], {.dtype = dtype});
  const nn::LanguageModel& model = p.language_model();
  print("load_s", steady_seconds() - start);
  int64_t bytes = 0;
  for (const Tensor& parameter : model.parameters())
    bytes += parameter.numel() * (dtype == bf16 ? 2 : 4);
  print("weights_bytes", double(bytes));
  print("loading_resident", peak_resident() - before);

  std::vector<int64_t> prompt(512);
  for (int64_t i = 0; i < 512; ++i) prompt[size_t(i)] = 100 + i * 7;
  print("prompt_s", time_of(7, [&] {
          nn::LanguageModel::Cache cache = model.make_cache();
          cache.last_logits_only = true;
          model(tensor(prompt, {1, 512}), &cache);
        }));

  std::vector<double> times;
  nn::LanguageModel::Cache cache = model.make_cache();
  start = 0;
  nn::generate([&](const Tensor& x) { return model(x, &cache); }, {22007, 6463, 314},
               {.max_tokens = 100, .sampling = {.temperature = 0}},
               [&](int64_t) {
                 const double now = steady_seconds();
                 if (start > 0) times.push_back(now - start);
                 start = now;
                 return true;
               });
  print("token_s", median(times));

  const std::vector<int64_t> data(static_cast<size_t>(bytes / 8), 1);
  print("floor_s", time_of(9, [&] { read_all(data); }));
  print("peak_resident", peak_resident());
  return 0;
}
