#include "nn/models/adaptive.h"

#include <algorithm>

#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/softmax.h"

namespace stretto::nn {
namespace {

AdaptiveOptions completed(AdaptiveOptions o) {
  const char* op = "AdaptiveOptions";
  if (o.d_embedding == 0) o.d_embedding = o.d_model;
  check(o.vocabulary >= 1 && o.d_model >= 1 && o.d_embedding >= 1 && o.div >= 1, op,
        "sizes must be at least 1: vocabulary ", o.vocabulary, ", d_model ", o.d_model,
        ", d_embedding ", o.d_embedding, ", div ", o.div);
  for (size_t i = 0; i < o.cutoffs.size(); ++i)
    check(o.cutoffs[i] > (i > 0 ? o.cutoffs[i - 1] : 0) &&
                  o.cutoffs[i]<o.vocabulary, op,
                               "cutoffs must rise strictly and lie between 0 and the vocabulary, ",
                               o.vocabulary, "; cutoff ", int64_t(i), " is ", o.cutoffs[i], i> 0
              ? str(" after ", o.cutoffs[i - 1])
              : "");
  const int64_t last = o.n_clusters() - 1;
  check(o.width(last) >= 1, op, "with d_embedding ", o.d_embedding, " and div ", o.div, " cluster ",
        last, " has width 0");
  return o;
}

int64_t rows_of(const AdaptiveOptions& o, int64_t table) {
  return o.n_tables() == 1 ? o.vocabulary : o.last(table) - o.first(table);
}

// Returns the tables, not initialized.
Tensors tables_of(const AdaptiveOptions& o) {
  Tensors tables;
  for (int64_t i = 0; i < o.n_tables(); ++i) tables.push_back(empty({rows_of(o, i), o.width(i)}));
  return tables;
}

// Returns the projections of the first n clusters, not initialized; none if there are none.
Tensors projections_of(const AdaptiveOptions& o, int64_t n) {
  Tensors projections;
  for (int64_t i = 0; i < n && o.projected(); ++i)
    projections.push_back(empty({o.d_model, o.width(i)}));
  return projections;
}

Tensor words_of(const char* op, const Tensor& indices, int64_t vocabulary) {
  return checked_index(op, indices, vocabulary, str("the vocabulary has ", vocabulary, " words"));
}

// Indices grouped by cluster, on the host.
struct Partition {
  std::vector<std::vector<int64_t>> positions;  // per cluster: positions of the indices in it
  std::vector<std::vector<int64_t>> local;  // these indices, relative to the cluster's first word

  Partition(const Tensor& words, const std::vector<int64_t>& ends)
      : positions(ends.size()), local(ends.size()) {
    const std::vector<int64_t> values = words.to_vector<int64_t>();
    for (size_t at = 0; at < values.size(); ++at) {
      const int64_t word = values[at];
      const auto cluster = size_t(std::upper_bound(ends.begin(), ends.end(), word) - ends.begin());
      positions[cluster].push_back(int64_t(at));
      local[cluster].push_back(cluster == 0 ? word : word - ends[cluster - 1]);
    }
  }
};

Tensor indices(const std::vector<int64_t>& values, Device device) {
  return tensor(values, {int64_t(values.size())}, device);
}

// On a GPU the host does not know the cluster of a word: all words are computed for every cluster,
// and words of other clusters are masked.
Tensor in_cluster(const Tensor& words, int64_t first, int64_t last) {
  return logical_and(ge(words, double(first)), lt(words, double(last)));
}
// Returns words relative to the first of the cluster, and `other` for words that are not `in` it.
Tensor local(const Tensor& words, const Tensor& in, int64_t first, int64_t other) {
  return masked_fill(words - double(first), logical_not(in), double(other));
}

}  // namespace

int64_t AdaptiveOptions::width(int64_t i) const {
  int64_t w = d_embedding;
  for (int64_t k = 0; k < i && div > 1; ++k) w /= div;
  return w;
}

// ------------------------------------------------------------------- input

AdaptiveTables::AdaptiveTables(AdaptiveOptions o)
    : options(completed(std::move(o))),
      weights(tables_of(options)),
      projections(projections_of(options, options.n_tables())) {}

Tensor AdaptiveTables::operator()(const Tensor& ids) const {
  auto rows = [&](size_t table, const Tensor& local) {
    const Tensor x = embedding(weights[table], local);
    return options.projected() ? linear(x, projections[table]) : x;
  };
  if (options.n_tables() == 1) return rows(0, ids);

  const Tensor words = words_of("AdaptiveTables", ids, options.vocabulary);
  Shape shape = ids.shape();
  shape.push_back(options.d_model);
  if (ids.device().is_cuda() && ids.numel() > 0) {
    const Tensor flat = words.flatten();
    Tensor x;
    for (int64_t i = 0; i < options.n_clusters(); ++i) {
      const Tensor in = in_cluster(flat, options.first(i), options.last(i));
      const Tensor of_cluster = masked_fill(rows(size_t(i), local(flat, in, options.first(i), 0)),
                                            logical_not(in).unsqueeze(1), 0);
      x = x.defined() ? x + of_cluster : of_cluster;
    }
    return x.reshape(shape);
  }
  std::vector<int64_t> ends = options.cutoffs;
  ends.push_back(options.vocabulary);
  const Partition parts(words, ends);
  Tensors found;  // in the order of clusters
  std::vector<int64_t> at(size_t(ids.numel()));
  int64_t n = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (parts.local[i].empty()) continue;
    found.push_back(rows(i, indices(parts.local[i], weights[0].device())));
    for (const int64_t position : parts.positions[i]) at[size_t(position)] = n++;
  }
  if (found.empty()) return zeros(shape, options_of(weights[0]));
  return index_select(cat(found), 0, indices(at, weights[0].device())).reshape(shape);
}

// ------------------------------------------------------------------- output

namespace {

Tensor projected(const Tensor& hidden, const AdaptiveCluster& c) {
  return c.projection.defined() ? matmul(hidden, c.projection) : hidden;
}

Tensor logits(const Tensor& hidden, const AdaptiveCluster& c) {
  return linear(projected(hidden, c), c.weight, c.bias);
}

// Returns the first word after each cluster.
std::vector<int64_t> ends_of(const char* op, const std::vector<AdaptiveCluster>& clusters) {
  check(!clusters.empty(), op, "needs at least one cluster");
  const auto others = int64_t(clusters.size()) - 1;
  std::vector<int64_t> ends;
  for (const AdaptiveCluster& c : clusters) {
    check(c.weight.defined() && c.weight.dim() == 2, op,
          "a cluster's weight must be [rows, width]");
    const int64_t rows = c.weight.size(0);
    check(!ends.empty() || rows > others, op, "the first weight ", c.weight,
          " has too few rows; must have at least one for its words and one for each of ", others,
          " other clusters");
    ends.push_back(ends.empty() ? rows - others : ends.back() + rows);
  }
  return ends;
}

}  // namespace

Tensor adaptive_nll(const Tensor& hidden, const Tensor& targets,
                    const std::vector<AdaptiveCluster>& clusters) {
  const char* op = "adaptive_nll";
  const std::vector<int64_t> ends = ends_of(op, clusters);
  check(hidden.dim() >= 1 && hidden.numel() == targets.numel() * hidden.size(-1) &&
            hidden.dim() == targets.dim() + 1,
        op, "hidden ", hidden, ", targets ", targets, "; targets must be [..] for hidden [.., D]");
  const Tensor words = words_of(op, targets, ends.back()).flatten();
  const Tensor rows = hidden.reshape({targets.numel(), hidden.size(-1)});
  const auto loss = [](const Tensor& x, const AdaptiveCluster& c, const Tensor& ids) {
    return linear_cross_entropy(projected(x, c), c.weight, c.bias, ids,
                                {.ignore_index = -1, .reduction = Reduction::none});
  };
  if (targets.device().is_cuda() && targets.numel() > 0) {
    Tensor first = words;  // the classes of the first softmax
    Tensors others;        // the words of each other cluster, −1 elsewhere
    for (size_t i = 1; i < ends.size(); ++i) {
      const Tensor in = in_cluster(words, ends[i - 1], ends[i]);
      first = masked_fill(first, in, double(ends[0] + int64_t(i) - 1));
      others.push_back(local(words, in, ends[i - 1], -1));
    }
    Tensor nll = loss(rows, clusters[0], first);
    for (size_t i = 1; i < ends.size(); ++i) nll = nll + loss(rows, clusters[i], others[i - 1]);
    return nll.reshape(targets.shape());
  }
  const Partition parts(words, ends);

  std::vector<int64_t> first(size_t(targets.numel()));  // classes of the first softmax
  for (size_t i = 0; i < ends.size(); ++i)
    for (size_t k = 0; k < parts.positions[i].size(); ++k)
      first[size_t(parts.positions[i][k])] = i == 0 ? parts.local[0][k] : ends[0] + int64_t(i) - 1;
  Tensor nll = loss(rows, clusters[0], indices(first, hidden.device()));
  for (size_t i = 1; i < ends.size(); ++i) {
    if (parts.local[i].empty()) continue;
    const Tensor at = indices(parts.positions[i], hidden.device());
    const Tensor within =
        loss(index_select(rows, 0, at), clusters[i], indices(parts.local[i], hidden.device()));
    nll = scatter_add(nll, 0, at, within);
  }
  return nll.reshape(targets.shape());
}

Tensor adaptive_log_probabilities(const Tensor& hidden,
                                  const std::vector<AdaptiveCluster>& clusters) {
  const std::vector<int64_t> ends = ends_of("adaptive_log_probabilities", clusters);
  const Tensor first = log_softmax(logits(hidden, clusters[0]));
  Tensors parts{first.slice(-1, 0, ends[0])};
  for (size_t i = 1; i < ends.size(); ++i) {
    const int64_t column = ends[0] + int64_t(i) - 1;
    parts.push_back(log_softmax(logits(hidden, clusters[i])) + first.slice(-1, column, column + 1));
  }
  return parts.size() == 1 ? first : cat(parts, -1);
}

namespace {

bool tied_projection(const AdaptiveSoftmax::Options& options, int64_t cluster) {
  return !options.tied_projections.empty() && options.tied_projections[size_t(cluster)];
}

AdaptiveSoftmax::Options checked(AdaptiveSoftmax::Options options, const AdaptiveTables* input) {
  const char* op = "AdaptiveSoftmax";
  options.clusters = completed(std::move(options.clusters));
  const AdaptiveOptions& o = options.clusters;
  const std::vector<bool>& tied = options.tied_projections;
  check(tied.empty() || int64_t(tied.size()) == o.n_clusters(), op, "tied_projections has ",
        int64_t(tied.size()), " entries for ", o.n_clusters(), " clusters");
  const bool any_projection = std::find(tied.begin(), tied.end(), true) != tied.end();
  check(input || (!options.tied && !any_projection), op,
        "the softmax is tied, but no embedding is given; pass the embedding whose parameters it "
        "shares");
  if (input) {
    const AdaptiveOptions& e = input->options;
    check(e.vocabulary == o.vocabulary && e.d_model == o.d_model &&
              e.d_embedding == o.d_embedding && e.cutoffs == o.cutoffs && e.div == o.div,
          op, "vocabulary, widths, cutoffs or div differ from those of the embedding");
  }
  return options;
}

// Returns the rows of the first softmax for the other clusters; undefined for one cluster.
Tensor cluster_weight_of(const AdaptiveOptions& o) {
  return o.n_clusters() > 1 ? empty({o.n_clusters() - 1, o.width(0)}) : Tensor();
}

Tensor cluster_bias_of(const AdaptiveOptions& o) {
  return o.n_clusters() > 1 ? zeros({o.n_clusters() - 1}) : Tensor();
}

Tensors projections_of(const AdaptiveSoftmax::Options& options, const AdaptiveTables* input) {
  const AdaptiveOptions& o = options.clusters;
  Tensors projections = projections_of(o, o.n_clusters());
  for (size_t i = 0; i < projections.size(); ++i)
    if (tied_projection(options, int64_t(i)))
      projections[i] = input->projections[o.n_tables() == 1 ? 0 : i];
  return projections;
}

}  // namespace

AdaptiveSoftmax::AdaptiveSoftmax(Options o)
    : options(checked(std::move(o), nullptr)),
      weights(tables_of(options.clusters)),
      bias(zeros({options.clusters.vocabulary})),
      cluster_weight(cluster_weight_of(options.clusters)),
      cluster_bias(cluster_bias_of(options.clusters)),
      projections(projections_of(options, nullptr)) {
  reset_parameters();
}

AdaptiveSoftmax::AdaptiveSoftmax(Module& parent, std::string name, Options o,
                                 const AdaptiveTables* input)
    : Module(parent, std::move(name)),
      options(checked(std::move(o), input)),
      weights(options.tied ? input->weights : tables_of(options.clusters)),
      bias(zeros({options.clusters.vocabulary})),
      cluster_weight(cluster_weight_of(options.clusters)),
      cluster_bias(cluster_bias_of(options.clusters)),
      projections(projections_of(options, input)) {
  reset_parameters();
}

void AdaptiveSoftmax::reset_parameters() {
  const AdaptiveOptions& o = options.clusters;
  const auto add = [&](bool tied, const std::string& name, const Tensor& x, double std) {
    tied ? shared_parameter(name, x) : parameter(name, x);
    if (!tied) normal_(x, 0, std);
  };
  for (size_t i = 0; i < weights.size(); ++i)
    add(options.tied, str("weight", i), weights[i], o.std);
  parameter("bias", bias);
  if (cluster_weight.defined()) {
    add(false, "cluster_weight", cluster_weight, o.std);
    parameter("cluster_bias", cluster_bias);
  }
  for (size_t i = 0; i < projections.size(); ++i)
    add(tied_projection(options, int64_t(i)), str("projection", i), projections[i],
        o.projection_std);
}

std::vector<AdaptiveCluster> AdaptiveSoftmax::clusters() const {
  const AdaptiveOptions& o = options.clusters;
  std::vector<AdaptiveCluster> all;
  for (int64_t i = 0; i < o.n_clusters(); ++i) {
    AdaptiveCluster c{.weight = o.n_tables() == 1 ? weights[0].slice(0, o.first(i), o.last(i))
                                                  : weights[size_t(i)],
                      .bias = bias.slice(0, o.first(i), o.last(i))};
    if (i == 0 && cluster_weight.defined()) {
      c.weight = cat({c.weight, cluster_weight});
      c.bias = cat({c.bias, cluster_bias});
    }
    if (o.projected()) c.projection = projections[size_t(i)];
    all.push_back(c);
  }
  return all;
}

Tensor AdaptiveSoftmax::nll(const Tensor& hidden, const Tensor& targets) const {
  return adaptive_nll(hidden, targets, clusters());
}

Tensor AdaptiveSoftmax::log_probabilities(const Tensor& hidden) const {
  return adaptive_log_probabilities(hidden, clusters());
}

std::string AdaptiveSoftmax::label() const {
  const AdaptiveOptions& o = options.clusters;
  return str("AdaptiveSoftmax(", o.vocabulary, " words, ", o.n_clusters(),
             o.n_clusters() == 1 ? " cluster" : " clusters", options.tied ? ", tied)" : ")");
}

}  // namespace stretto::nn
