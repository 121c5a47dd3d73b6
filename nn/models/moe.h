// Mixture of experts: each token is computed by a few of many feed-forward networks, chosen by a
// router (Shazeer et al. 2017). In a layer:
//
//     .feed_forward = {.d_hidden = 1024, .network = nn::moe({.n_experts = 8, .top_k = 2})}
//
// Every token is computed by all of its experts: there is no capacity beyond which tokens are
// dropped. The tokens are sorted by expert, and one product computes a layer of all experts
// (ops/grouped_linear.h). The host does not wait for a GPU, so steps can be captured.
//
// Experts are called one by one, on a GPU with a wait for the router's choice, if one of them has a
// LoRA adapter; on the CPU also without gate and dropout, because feed_forward() is fused there.
//
// Reference: tests/reference/moe.cpp, moe()
#pragma once

#include <optional>
#include <vector>

#include "../feed_forward.h"

namespace stretto::nn {

class ProcessGroup;  // nn/distributed/process_group.h

/// The function that turns the router's logits into scores of the experts.
enum class RouterScore {
  softmax,  ///< Over all experts (Qwen3). With MoEOptions::normalize the weights are those of Mixtral.
  sigmoid  ///< Of each expert by itself (DeepSeek-V3).
};

/// Options of MoE. Names in transformers are in brackets.
struct MoEOptions {
  int64_t n_experts = 0;                     ///< E (num_experts), at least 1.
  int64_t top_k = 2;                         ///< Experts per token (num_experts_per_tok), 1 … E.
  RouterScore score = RouterScore::softmax;  ///< Scores of the experts.
  /// Divides the weights of a token by their sum (norm_topk_prob).
  bool normalize = true;
  double scale = 1;          ///< Factor of the weights (routed_scaling_factor).
  bool router_bias = false;  ///< Bias of the router's logits (gpt-oss).
  /// > 0: a network of this hidden dimension computes every token, too
  /// (shared_expert_intermediate_size).
  int64_t d_shared = 0;
  /// The number of further experts, after the others, that compute every token. The router scores
  /// them, too, and `normalize` counts their scores (n_shared_experts of Inkling).
  int64_t n_always = 0;
  bool shared_gate = false;  ///< Multiplies its output by σ(x·w) (Qwen2-MoE, Qwen3-Next).
  /// A bias per expert that only the choice sees, not the weights (e_score_correction_bias), for
  /// MoE::update_selection_bias().
  bool selection_bias = false;
  /// > 1: experts in groups of equal size; a token's experts are those of the `top_groups` best groups
  /// only (n_group, topk_group). The score of a group is that of its best expert (softmax, DeepSeek-V2)
  /// or the sum of its two best, with their bias (sigmoid, DeepSeek-V3).
  int64_t n_groups = 1;
  int64_t top_groups = 1;  ///< 1 … n_groups; together they have at least top_k experts.
  /// α of the further loss α E Σ_e f_e P_e (Fedus et al. 2021, eq. 4): f_e is the share of the tokens'
  /// choices, P_e the mean score, over all tokens of the call, padding included. Part of
  /// ForwardContext::total_loss() in training mode: for calls with a context of your own, such as
  /// LanguageModel::nll, and not within recompute(). Each process computes it from its own
  /// tokens, under data and sequence parallelism.
  double balance = 0;
};

/// Experts: with scores s = score(router(x)), the top_k of the first n_experts experts by s + b and
/// the n_always others, and their weights w_e = scale · s_e / Σ s (or scale · s_e):
///
///     y = Σ_e w_e expert_e(x) + shared(x) σ(x·gate)
class MoE : public PositionWise {
 public:
  /// Registers the module in `parent` as "feed_forward". `expert` has the options of each expert.
  /// Throws if an option is out of its range.
  MoE(Module& parent, const FeedForwardOptions& expert, MoEOptions options);

  /// x [.., d_model] → [.., d_model].
  Tensor operator()(const Tensor& x, const ForwardContext& forward = {}) const override;
  /// Balances the experts without a further loss (Wang et al. 2024): b_e grows by `rate` if expert e
  /// was chosen less often than the mean since the last call, and else becomes smaller. Call it after each
  /// step of the optimizer (TrainerOptions::after_step), with the group of data parallelism, so that all
  /// processes have the same b. Waits for a GPU. The counts of choices are not part of a checkpoint.
  void update_selection_bias(double rate, ProcessGroup* group = nullptr) const;
  /// Returns how often each expert was chosen in training mode since the last
  /// update_selection_bias(), padding included. Waits for a GPU.
  std::vector<double> load() const;
  std::string label() const override;

  const MoEOptions options;         ///< As passed to the constructor.
  const FeedForwardOptions expert;  ///< Options of each expert.
  /// Logits of all experts.
  Linear router{
      *this, "router", {expert.d_model, options.n_experts + options.n_always, options.router_bias}};
  /// b [E] in at least f32, with MoEOptions::selection_bias; a buffer.
  const Tensor selection_bias;
  /// The experts; the last MoEOptions::n_always are used for every token.
  List<FeedForward> experts{*this, "experts", options.n_experts + options.n_always, expert};
  std::optional<FeedForward> shared;  ///< With MoEOptions::d_shared.
  std::optional<Linear> shared_gate;  ///< w, with MoEOptions::shared_gate.

 private:
  struct Choice {
    Tensor ids;      // of experts [T, k]
    Tensor weights;  // [T, k]
    Tensor scores;   // of the first n_experts experts [T, E]
  };
  void hide_other_groups(Tensor& scores) const;
  Choice choose(const Tensor& x) const;
  bool has_adapters() const;
  Tensor one_by_one(const Tensor& rows, const Tensor& offsets, const ForwardContext& forward) const;
  Tensor grouped(const Tensor& rows, const Tensor& offsets, const ForwardContext& forward) const;
  void add_balance(const Tensor& scores, const Tensor& counts, const ForwardContext& forward) const;
  void add_load(const Tensor& counts) const;

  mutable Tensor load_;  // [E] f64 on the device of the last call, at first undefined
};

/// Returns a factory of MoE, for FeedForwardOptions::network.
MakePositionWise moe(MoEOptions options);

}  // namespace stretto::nn
