// Large vocabularies: adaptive input (Baevski & Auli 2019) and adaptive softmax (Grave et al.
// 2017), in the form of Transformer-XL, where the two may share their tables.
//
// The vocabulary, sorted by falling frequency, is cut into a shortlist and clusters. With div > 1
// rarer clusters have narrower vectors, brought to the model's width by projections.
//
// Reference: tests/reference/adaptive.cpp, nll_by_loops()
#pragma once

#include <vector>

#include "../module.h"

namespace stretto::nn {

/// How a vocabulary is cut and how wide its vectors are.
struct AdaptiveOptions {
  int64_t vocabulary = 0;
  int64_t d_model = 0;
  int64_t d_embedding = 0;            // width of the shortlist's vectors; 0: d_model
  std::vector<int64_t> cutoffs = {};  // ends of all clusters but the last: rising, in (0, V)
  int64_t div = 1;                    // cluster i has width ⌊d_embedding / div^i⌋
  double std = 0.02;                  // of tables at the start
  double projection_std = 0.01;

  int64_t n_clusters() const { return int64_t(cutoffs.size()) + 1; }  // with the shortlist
  int64_t first(int64_t i) const { return i == 0 ? 0 : cutoffs[size_t(i - 1)]; }
  int64_t last(int64_t i) const { return i + 1 == n_clusters() ? vocabulary : cutoffs[size_t(i)]; }
  int64_t width(int64_t i) const;
  /// One table for all clusters where they have one width (div 1).
  int64_t n_tables() const { return div == 1 ? 1 : n_clusters(); }
  /// Projections exist where div > 1 or d_embedding ≠ d_model.
  bool projected() const { return div > 1 || d_embedding != d_model; }
};

/// ids of any shape S (i64 or i32, in [0, V)) → [S…, d_model].
class AdaptiveEmbedding : public Module {
 public:
  using Options = AdaptiveOptions;
  explicit AdaptiveEmbedding(Options options);
  AdaptiveEmbedding(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& ids) const;
  std::string label() const override;

  const Options options;
  const Tensors weights;  // weight0 [V, d_embedding], or with div > 1 one per cluster [rows, width]
  const Tensors projections;  // projection0 … [d_model, width], one per table, or none

 private:
  void reset_parameters();
};

/// One cluster of an adaptive softmax: logits (h P) Wᵀ + b. The shortlist's W has a row for each of
/// its words and, after them, one for each other cluster.
struct AdaptiveCluster {
  Tensor weight;           // W [rows, width]
  Tensor bias;             // b [rows]
  Tensor projection = {};  // P [d_model, width]; undefined: width = d_model
};

/// −log p of each target: hidden [.., d_model], targets [..] (i64 or i32, in [0, V)) → [..], in the
/// targets' order. A word of cluster i > 0 has the probability of its cluster, row
/// shortlist + i − 1 of the first softmax, times its own within the cluster. Only the rows of a
/// cluster go through its softmax, unless the targets are on a GPU: there all rows go through all,
/// so that the host need not wait for what they are. With one cluster this is a plain output layer.
Tensor adaptive_nll(const Tensor& hidden, const Tensor& targets,
                    const std::vector<AdaptiveCluster>& clusters);

/// log p of every word: hidden [.., d_model] → [.., V].
Tensor adaptive_log_probabilities(const Tensor& hidden,
                                  const std::vector<AdaptiveCluster>& clusters);

struct AdaptiveSoftmaxOptions {
  AdaptiveOptions clusters = {};
  bool tied = false;                        // its tables are the embedding's
  std::vector<bool> tied_projections = {};  // per cluster; empty: none
};

/// The output layer of a language model over a vocabulary of clusters.
class AdaptiveSoftmax : public Module {
 public:
  using Options = AdaptiveSoftmaxOptions;
  /// `embedding`, of the same AdaptiveOptions, is needed where something is tied.
  explicit AdaptiveSoftmax(Options options);
  AdaptiveSoftmax(Module& parent, std::string name, Options options,
                  const AdaptiveEmbedding* embedding = nullptr);

  /// [.., d_model], [..] → [..] (adaptive_nll).
  Tensor nll(const Tensor& hidden, const Tensor& targets) const;
  /// [.., d_model] → [.., V], normalised.
  Tensor log_probabilities(const Tensor& hidden) const;
  /// Weights, biases and projections as the two functions above take them.
  std::vector<AdaptiveCluster> clusters() const;
  std::string label() const override;

  const Options options;
  const Tensors weights;                      // as in AdaptiveEmbedding
  const Tensor bias;                          // [V], zeros at the start
  const Tensor cluster_weight, cluster_bias;  // [n_clusters − 1, width of the shortlist], [..]
  const Tensors projections;                  // one per cluster [d_model, width], or none

 private:
  void reset_parameters();
};

}  // namespace stretto::nn
