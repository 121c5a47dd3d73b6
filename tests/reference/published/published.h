// Published architectures, from their definitions (Hugging Face's transformers, modeling_NAME.py),
// by loops in double precision, for one sequence of tokens and with the weights under the names
// that checkpoints have. They know nothing of the library's layers; the model of
// tests/nn/published/ that is loaded from the same weights must agree with them.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/reference/attention.h"

namespace stretto::reference {

using Tokens = std::vector<int64_t>;

/// A checkpoint's tensors by their names; vectors are matrices of one row.
class Weights {
 public:
  explicit Weights(const std::map<std::string, Tensor>& tensors);
  bool has(const std::string& name) const { return matrices_.count(name) == 1; }
  const Matrix& operator[](const std::string& name) const { return matrices_.at(name); }

 private:
  std::map<std::string, Matrix> matrices_;
};

// ---------------------------------------------------------------------------- what they share

Matrix operator+(const Matrix& a, const Matrix& b);
/// Elementwise.
Matrix operator*(const Matrix& a, const Matrix& b);
/// Rows of a table.
Matrix rows(const Matrix& table, const Tokens& tokens);
/// Columns first … first + n − 1.
Matrix columns(const Matrix& x, int64_t first, int64_t n);
Matrix map(Matrix x, double (*f)(double));

/// x Wᵀ + b with NAME.weight [out, in] and, where there is one, NAME.bias.
Matrix linear(const Weights& w, const Matrix& x, const std::string& name);
Matrix layer_norm(const Weights& w, const Matrix& x, const std::string& name, double eps);
Matrix rms_norm(const Weights& w, const Matrix& x, const std::string& name, double eps);

double gelu(double x);
double gelu_tanh(double x);
double silu(double x);

/// Rows t of each head of x [L, heads · D] turned by t · rates[i]: number i of a head with number
/// i + pairs, the numbers after the pairs stay, and all that turns is multiplied by `factor`.
void rotate_half(Matrix& x, int64_t heads, const std::vector<double>& rates, double factor = 1);
/// The same with numbers 2i and 2i + 1.
void rotate_interleaved(Matrix& x, int64_t heads, const std::vector<double>& rates);
/// base^(−2i/dims).
std::vector<double> rotary_rates(int64_t dims, double base);

/// Σ over one head of a's row i and b's row j, heads of d numbers.
double dot(const Matrix& a, int64_t i, int64_t head_a, const Matrix& b, int64_t j, int64_t head_b,
           int64_t d);
/// The score of a key that is not seen.
inline constexpr double unseen = -std::numeric_limits<double>::infinity();
/// Joined heads [M, heads · D] of softmax over keys j of score(head, i, j), times v [N, groups ·
/// D]; head h has the values of group h · groups / heads.
Matrix attend(int64_t m, int64_t heads, const Matrix& v, int64_t groups,
              const std::function<double(int64_t head, int64_t i, int64_t j)>& score);

// ---------------------------------------------------------------------------- the architectures
// Sizes that the weights do not tell. → logits [L, vocabulary], but of DeBERTa.

struct LlamaSizes {
  int64_t layers, heads, kv_heads;
  std::vector<double> rates;  // of the rotation
  double attention_factor = 1, eps = 1e-5;
  int64_t window = 0;  // Mistral
};
Matrix llama(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);
Matrix mistral(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);
Matrix qwen3(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);

Matrix gpt2(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads);
Matrix gpt_neox(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
                double rotary_share);
Matrix gptj(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
            int64_t rotary_dims);
Matrix bloom(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads);

/// T5 1.1: a gated network, an output projection of its own.
Matrix t5(const Weights& w, const Tokens& source, const Tokens& target, int64_t layers,
          int64_t heads, int64_t max_distance);

struct DebertaSizes {
  int64_t layers, heads, buckets, max_distance;
};
/// The last hidden states [L, d_model] of v2 with share_att_key and a norm of the relative rows, as
/// v3's checkpoints have them.
Matrix deberta_v2(const Weights& w, const Tokens& tokens, const DebertaSizes& sizes);

}  // namespace stretto::reference
