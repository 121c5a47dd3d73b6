// A GPT in one file, without nn: tensors, a relative position written out, Adam, and sampling.
//
// It learns the English names of the numbers below a thousand, letter by letter, and writes some of
// its own. Shapes: B sequences, L letters, C features, H heads of D = C / H features, V letters.
#include <stretto/stretto.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <set>
#include <string>
using namespace stretto;

constexpr int64_t B = 32, L = 32, C = 64, H = 4, D = C / H, layers = 2;

std::string name_of(int n) {
  static const std::vector<std::string> small{
      "zero",     "one",     "two",     "three",     "four",     "five",    "six",
      "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
      "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static const std::vector<std::string> tens{"twenty", "thirty",  "forty",  "fifty",
                                             "sixty",  "seventy", "eighty", "ninety"};
  if (n >= 100)
    return small[size_t(n / 100)] + " hundred" + (n % 100 ? " and " + name_of(n % 100) : "");
  if (n >= 20) return tens[size_t(n / 10 - 2)] + (n % 10 ? "-" + small[size_t(n % 10)] : "");
  return small[size_t(n)];
}

const std::string letters = "\n -abcdefghijklmnopqrstuvwxyz";  // 0 ends a name
const int64_t V = int64_t(letters.size());

// ---- parameters ----

Tensors parameters;  // all parameters of the model, for the optimizer

Tensor parameter(const Shape& shape, double std) {
  parameters.push_back((randn(shape) * std).set_requires_grad());
  return parameters.back();
}

struct Layer {
  Tensor qkv = parameter({3 * C, C}, 0.08), out = parameter({C, C}, 0.08);
  // One number per head and distance: the score of a key r letters back gets bias[h, r].
  Tensor bias = parameter({H, L}, 0.02);
  Tensor up = parameter({4 * C, C}, 0.08), down = parameter({C, 4 * C}, 0.08);
};

struct Model {
  Tensor embedding = parameter({V, C}, 0.08);
  std::vector<Layer> layers{::layers};
};

// ---- the forward pass ----

// bias [H, L] → [H, n, n]: element (i, j) is the bias of distance i − j, 0 for j > i.
Tensor by_distance(const Tensor& bias, int64_t n) {
  const Tensor i = arange(n).reshape({n, 1}), j = arange(n).reshape({1, n});
  const Tensor distance = clamp(i - j, 0, double(n - 1)).reshape({1, n * n}).expand({H, n * n});
  return gather(bias, 1, distance).reshape({H, n, n});
}

// x [B, n, C] → the same: causal attention, softmax(q kᵀ / √D + bias) v in each head.
Tensor attention(const Layer& layer, const Tensor& x) {
  const int64_t batch = x.size(0), n = x.size(1);
  const Tensor qkv = linear(x, layer.qkv).reshape({batch, n, 3, H, D}).permute({2, 0, 3, 1, 4});
  const Tensor q = qkv[0], k = qkv[1], v = qkv[2];  // [B, H, n, D]
  Tensor scores = matmul(q, k.transpose(2, 3)) / std::sqrt(double(D));
  scores = scores + by_distance(layer.bias, n);
  const Tensor later = triu(ones({n, n}), 1).to(boolean);  // keys after the query
  const Tensor weights = softmax(masked_fill(scores, later, -INFINITY));
  return linear(matmul(weights, v).transpose(1, 2).reshape({batch, n, C}), layer.out);
}

// tokens [B, n] → logits of the next letter [B, n, V]. The embedding is also the output matrix.
Tensor forward(const Model& model, const Tensor& tokens) {
  Tensor x = embedding(model.embedding, tokens);
  for (const Layer& layer : model.layers) {
    x = x + attention(layer, rms_norm(x));
    x = x + linear(square(relu(linear(rms_norm(x), layer.up))), layer.down);
  }
  return linear(rms_norm(x), model.embedding);
}

// ---- data ----

// B lines of names of random numbers, one after the other, [B, L + 1].
Tensor batch_of(std::mt19937& random) {
  std::vector<int64_t> tokens;
  for (int64_t b = 0; b < B; ++b) {
    std::string line = "\n";
    while (int64_t(line.size()) < L + 1) line += name_of(int(random() % 1000)) + "\n";
    for (int64_t i = 0; i < L + 1; ++i) tokens.push_back(int64_t(letters.find(line[size_t(i)])));
  }
  return tensor(tokens, {B, L + 1});
}

// ---- Adam (Kingma & Ba 2015), with the bias corrections in the step size ----

struct Adam {
  Tensors m, v;
  int step = 0;

  void operator()(double lr) {
    constexpr double beta1 = 0.9, beta2 = 0.99, eps = 1e-8;
    const NoGrad guard;
    ++step;
    const double c1 = 1 - std::pow(beta1, step), c2 = 1 - std::pow(beta2, step);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (m.size() == i) m.push_back(zeros_like(parameters[i])), v.push_back(zeros_like(m[i]));
      const Tensor g = parameters[i].grad();
      m[i].mul_(beta1).add_(g, 1 - beta1);
      v[i].mul_(beta2).add_(square(g), 1 - beta2);
      parameters[i].add_(m[i] / (sqrt(v[i] / c2) + eps), -lr / c1);
      parameters[i].set_grad({});
    }
  }
};

// ---- sampling ----

// Draws letters until a name ends. The model sees the last L letters: it was not trained on longer
// sequences.
std::string sample(const Model& model, std::mt19937& random) {
  const NoGrad guard;
  std::vector<int64_t> tokens{0};
  std::string name;
  while (name.size() < 40) {
    const size_t begin = tokens.size() > size_t(L) ? tokens.size() - size_t(L) : 0;
    const std::vector<int64_t> window(tokens.begin() + std::ptrdiff_t(begin), tokens.end());
    const Tensor logits = forward(model, tensor(window, {1, int64_t(window.size())}))[0][-1];
    const auto p = softmax(logits).to_vector<double>();
    tokens.push_back(std::discrete_distribution<int64_t>(p.begin(), p.end())(random));
    if (tokens.back() == 0) break;
    name += letters[size_t(tokens.back())];
  }
  return name;
}

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda
  if (config.dtype != f32) return std::fprintf(stderr, "microgpt: computes in f32 only\n"), 2;
  const DefaultDevice device(config.device);
  manual_seed(1);
  std::mt19937 random(1);
  const Model model;
  Adam adam;
  const int steps = 400;
  for (int step = 0; step <= steps; ++step) {
    const Tensor tokens = batch_of(random);
    const Tensor loss = cross_entropy(forward(model, tokens.slice(1, 0, L)), tokens.slice(1, 1));
    loss.backward();
    adam(4e-3 * (1 - double(step) / (steps + 1)));
    if (step % 100 == 0) std::printf("step %3d  loss %.3f nats per letter\n", step, loss.item());
  }

  std::set<std::string> numbers;
  for (int n = 0; n < 1000; ++n) numbers.insert(name_of(n));
  int right = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string name = sample(model, random);
    right += int(numbers.count(name));
    if (i < 5) std::printf("  %s\n", name.c_str());
  }
  std::printf("%d of 50 samples are names of numbers\n", right);
}
