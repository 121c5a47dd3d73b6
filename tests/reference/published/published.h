// Published architectures, from their definitions (Hugging Face's transformers, modeling_NAME.py),
// by loops in double precision, for one sequence of tokens, with the weights under the names that
// checkpoints use. They do not use the library's layers. The models of tests/pretrained/published/, loaded
// from the same weights, must agree with them.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tests/reference/attention.h"

namespace stretto::reference {

using Tokens = std::vector<int64_t>;

/// The tensors of a checkpoint as matrices, by name. Vectors are matrices of one row; of more than two
/// dimensions, the first ones are joined if the first has size 1, otherwise the last ones.
class Weights {
 public:
  explicit Weights(const std::map<std::string, Tensor>& tensors);
  /// True if the checkpoint has this tensor.
  bool has(const std::string& name) const { return matrices_.count(name) == 1; }
  /// Returns a tensor; throws if there is none of this name.
  const Matrix& operator[](const std::string& name) const { return matrices_.at(name); }

 private:
  std::map<std::string, Matrix> matrices_;
};

// ---------------------------------------------------------------------------- shared functions

/// Returns the elementwise sum.
Matrix operator+(const Matrix& a, const Matrix& b);
/// Returns the elementwise product.
Matrix operator*(const Matrix& a, const Matrix& b);
/// Returns the rows of a table [V, D] for these tokens: [L, D].
Matrix rows(const Matrix& table, const Tokens& tokens);
/// Returns the columns first … first + n − 1.
Matrix columns(const Matrix& x, int64_t first, int64_t n);
/// Applies f to each element.
Matrix map(Matrix x, double (*f)(double));

/// Computes x Wᵀ + b with NAME.weight [out, in] and NAME.bias, if the checkpoint has it.
Matrix linear(const Weights& w, const Matrix& x, const std::string& name);
/// Normalizes each row by its mean and variance; NAME.weight and NAME.bias (Ba et al. 2016).
Matrix layer_norm(const Weights& w, const Matrix& x, const std::string& name, double eps);
/// Divides each row by its root mean square; NAME.weight (Zhang & Sennrich 2019).
Matrix rms_norm(const Weights& w, const Matrix& x, const std::string& name, double eps);

/// Returns x Φ(x) (Hendrycks & Gimpel 2016).
double gelu(double x);
/// Returns its approximation with tanh.
double gelu_tanh(double x);
/// Returns x · sigmoid(x).
double silu(double x);

/// Rotates row t of each head of x [L, heads · D] by the angles t · rates[i]: feature i of a head
/// forms a pair with feature i + pairs. Rotated features are multiplied by `factor`; the features
/// after the pairs stay unchanged (Su et al. 2021).
void rotate_half(Matrix& x, int64_t heads, const std::vector<double>& rates, double factor = 1);
/// Does the same with pairs of the features 2i and 2i + 1.
void rotate_interleaved(Matrix& x, int64_t heads, const std::vector<double>& rates);
/// Returns the frequencies base^(−2i/dims) of dims / 2 pairs.
std::vector<double> rotary_rates(int64_t dims, double base);

// ---------------------------------------------------------------------------- the architectures
// The arguments after the tokens are sizes that the weights do not show. All return the logits
// [L, vocabulary], except BERT and DeBERTa.

/// Sizes of LLaMA, Mistral and Qwen3.
struct LlamaSizes {
  int64_t layers, heads, kv_heads;
  std::vector<double> rates;  // frequencies of the rotation
  double attention_factor = 1, eps = 1e-5;
  int64_t window = 0;  // of Mistral
};
/// LLaMA (Touvron et al. 2023).
Matrix llama(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);
/// Mistral (Jiang et al. 2023).
Matrix mistral(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);
/// Qwen3 (Yang et al. 2025).
Matrix qwen3(const Weights& w, const Tokens& tokens, const LlamaSizes& sizes);

/// GPT-2 (Radford et al. 2019).
Matrix gpt2(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads);
/// GPT-NeoX (Black et al. 2022).
Matrix gpt_neox(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
                double rotary_share);
/// GPT-J (Wang & Komatsuzaki 2021).
Matrix gptj(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
            int64_t rotary_dims);
/// BERT (Devlin et al. 2019); `types` are the token types. Returns the last layer's output [L, D].
Matrix bert(const Weights& w, const Tokens& tokens, const Tokens& types, int64_t layers,
            int64_t heads);

/// ViT (Dosovitskiy et al. 2021), with its classifier: the logits [1, classes] of an image
/// [C, height, width] with patches of `patch` × `patch` pixels.
Matrix vit(const Weights& w, const Tensor& image, int64_t patch, int64_t layers, int64_t heads);

/// torch.nn.Transformer with its defaults: source [N, D], target [M, D] → [M, D]; causal
/// self-attention in the decoder.
Matrix torch_transformer(const Weights& w, const Matrix& source, const Matrix& target,
                         int64_t layers, int64_t heads);

/// BLOOM (BigScience 2022).
Matrix bloom(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads);

/// T5 1.1 (Raffel et al. 2020), with a gated network and an untied output projection.
Matrix t5(const Weights& w, const Tokens& source, const Tokens& target, int64_t layers,
          int64_t heads, int64_t max_distance);

/// Sizes of DeBERTa v2.
struct DebertaSizes {
  int64_t layers, heads, buckets, max_distance;
};
/// DeBERTa v2 (He et al. 2021) with share_att_key and a norm of the relative rows, as configured in
/// the checkpoints of v3; returns the last hidden states [L, d_model].
Matrix deberta_v2(const Weights& w, const Tokens& tokens, const DebertaSizes& sizes);

}  // namespace stretto::reference
