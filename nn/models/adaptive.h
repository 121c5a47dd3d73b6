// Large vocabularies: adaptive input (Baevski & Auli 2019) and adaptive softmax (Grave et al.
// 2017), as in Transformer-XL, where both may share their tables.
//
// The vocabulary, sorted by descending frequency, is divided into a shortlist and clusters. With
// div > 1 rarer clusters have narrower vectors, which projections map to and from d_model.
//
// Reference: tests/reference/adaptive.cpp, nll_by_loops()
#pragma once

#include <vector>

#include "../module.h"

namespace stretto::nn {

/// The clusters of a vocabulary and the widths of their vectors. Cluster 0 is the shortlist.
struct AdaptiveOptions {
  int64_t vocabulary = 0;   ///< V, the number of words.
  int64_t d_model = 0;      ///< Dimension of the embedding's output and the softmax's input.
  int64_t d_embedding = 0;  ///< Width of the shortlist's vectors; 0: d_model.
  /// First word after each cluster except the last, ascending, in (0, V). Empty: one cluster.
  std::vector<int64_t> cutoffs = {};
  int64_t div = 1;               ///< Cluster i has width ⌊d_embedding / div^i⌋.
  double std = 0.02;             ///< Initial standard deviation of the tables.
  double projection_std = 0.01;  ///< Initial standard deviation of the projections.

  /// Returns the number of clusters, the shortlist included.
  int64_t n_clusters() const { return int64_t(cutoffs.size()) + 1; }
  /// Returns the first word of cluster i.
  int64_t first(int64_t i) const { return i == 0 ? 0 : cutoffs[size_t(i - 1)]; }
  /// Returns the first word after cluster i.
  int64_t last(int64_t i) const { return i + 1 == n_clusters() ? vocabulary : cutoffs[size_t(i)]; }
  /// Returns the width of the vectors of cluster i.
  int64_t width(int64_t i) const;
  /// Returns the number of tables: one for all clusters if they have the same width (div 1).
  int64_t n_tables() const { return div == 1 ? 1 : n_clusters(); }
  /// Returns true if there are projections: div > 1 or d_embedding ≠ d_model.
  bool projected() const { return div > 1 || d_embedding != d_model; }
};

/// The tables of an adaptive input, whose vectors are narrower for rare words (InputEmbedding). With
/// one cluster it is an embedding.
struct AdaptiveTables {
  /// Creates tables and projections, not initialized. Throws if sizes or cutoffs do not fit
  /// together.
  explicit AdaptiveTables(AdaptiveOptions options);
  /// ids of any shape S (i64 or i32, in [0, V)) → [S…, d_model].
  Tensor operator()(const Tensor& ids) const;

  AdaptiveOptions options;  ///< As passed to the constructor, with defaults filled in.
  Tensors weights;          ///< [V, d_embedding], or with div > 1 one per cluster [words, width].
  Tensors
      projections;  ///< One per table [d_model, width]; empty unless AdaptiveOptions::projected().
};

/// One cluster of an adaptive softmax: logits (h P) Wᵀ + b. The W of the shortlist has one row per
/// word, followed by one row per other cluster.
struct AdaptiveCluster {
  Tensor weight;           ///< W [rows, width].
  Tensor bias;             ///< b [rows].
  Tensor projection = {};  ///< P [d_model, width]; undefined if width = d_model.
};

/// Computes −log p of each target: hidden [.., d_model], targets [..] (i64 or i32, in [0, V)) →
/// [..]. The probability of a word of cluster i > 0 is the probability of the cluster (row
/// shortlist size + i − 1 of the first softmax) times the probability of the word within the
/// cluster. With one cluster this is a softmax over all words.
///
/// On the CPU a cluster is computed only for the rows whose target is in it. On a GPU all clusters
/// are computed for all rows, so that the host need not wait for the targets.
Tensor adaptive_nll(const Tensor& hidden, const Tensor& targets,
                    const std::vector<AdaptiveCluster>& clusters);

/// Computes log p of every word: hidden [.., d_model] → [.., V].
Tensor adaptive_log_probabilities(const Tensor& hidden,
                                  const std::vector<AdaptiveCluster>& clusters);

/// Options of AdaptiveSoftmax.
struct AdaptiveSoftmaxOptions {
  AdaptiveOptions clusters = {};  ///< The vocabulary's clusters.
  bool tied = false;              ///< Uses the tables of the input.
  /// For each cluster, whether it uses the input's projection; empty: no cluster does.
  std::vector<bool> tied_projections = {};
};

/// The output layer of a language model over a vocabulary of clusters.
class AdaptiveSoftmax : public Module {
 public:
  using Options = AdaptiveSoftmaxOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if anything is tied.
  explicit AdaptiveSoftmax(Options options);
  /// Constructs a child of `parent`. If anything is tied, `input` must have the same
  /// AdaptiveOptions.
  AdaptiveSoftmax(Module& parent, std::string name, Options options,
                  const AdaptiveTables* input = nullptr);

  /// Computes −log p of the targets: hidden [.., d_model], targets [..] → [..] (adaptive_nll).
  Tensor nll(const Tensor& hidden, const Tensor& targets) const;
  /// Computes log p of every word, normalized: hidden [.., d_model] → [.., V].
  Tensor log_probabilities(const Tensor& hidden) const;
  /// Returns weights, biases and projections as adaptive_nll() accepts them.
  std::vector<AdaptiveCluster> clusters() const;
  std::string label() const override;

  const Options options;        ///< As passed to the constructor, with defaults filled in.
  const Tensors weights;        ///< As in AdaptiveTables.
  const Tensor bias;            ///< [V], initially 0.
  const Tensor cluster_weight;  ///< [n_clusters − 1, d_embedding]; undefined for one cluster.
  const Tensor cluster_bias;    ///< [n_clusters − 1], initially 0; undefined for one cluster.
  const Tensors projections;    ///< One per cluster [d_model, width], or empty.

 private:
  void reset_parameters();
};

}  // namespace stretto::nn
