#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forward/layer_context.h"

namespace kvcal {

/// Consecutive rows and the MLP that they run through: those routed to one expert, or all. Such
/// parts lie one behind the other, and their MLPs differ in nothing but the weights.
struct MlpPart {
  const PackedMlp& mlp;
  int64_t rows = 0;
  int64_t index = 0;                   ///< of the expert
  std::vector<Segment> segments = {};  ///< as in LinearInput; empty: the batch's
  AmaxSlot seen = {};                  ///< of the inner rows
};

/// MLP or experts of a layer, or both.
class FeedForward : private LayerPart {
 public:
  explicit FeedForward(LayerContext& context);

  /// Whether the layer has any.
  bool exists() const { return layer().mlp.width > 0 || !layer().moe.experts.empty(); }
  /// The slot of normed where the MLP reads all of it; none where it reads only some rows.
  AmaxSlot input_slot() const;
  /// Adds the MLP or the experts of normed to hidden; without is_normed, the norm of x runs first.
  /// x: the residual stream before, hidden itself but for hyper-connections. Does nothing where the
  /// layer has none. states: as LayerRunner::keys_values has them.
  void run(const float* x, float* hidden, bool is_normed, const LayerStates* states);
  /// Observes the inputs of every expert as if it got all tokens.
  void show_all_experts(bool wanted) { shows_all_experts_ = wanted; }

 private:
  Branch mlp_branch() const {
    return branch(layer().mlp_output_norm, config_.mlp_output_multiplier);
  }
  /// Adds the output of the MLP or the experts, in projected, to hidden by the branch.
  void add_fed(const LayerStates* states, float* hidden);
  /// Adds the norm of MLP and experts of x together to hidden; normed holds the MLP's input.
  void add_both(const float* x, float* hidden);

  /// Writes the activated inner rows of all parts of x, [rows of all parts, width], to activated.
  /// role: of x. Observes both.
  void activate(std::span<const MlpPart> parts, const Buffer& x, Role role,
                bool is_observed = true);
  /// activate for all rows of x.
  void activate_all(const PackedMlp& mlp, const Buffer& x, Role role = Role::kUp,
                    int64_t index = 0);
  /// Writes the activated inner rows of one part, whose first one it is and whose input is x.
  void activate_part(const MlpPart& part, int64_t first_row, const std::byte* x);
  /// The same where a norm follows the activation.
  void activate_normed(const MlpPart& part, const std::byte* x);
  /// The same of a shared expert, where the rows' weights, [rows], multiply the activated rows.
  void activate_weighed(const MlpPart& part, const float* weights);
  /// Writes the activated inner rows of x to out, of out_type.
  void activate_rows(const MlpPart& part, const std::byte* x, ComputeType out_type, void* out,
                     AmaxSlot seen);
  /// Calls body(part, its first row, its rows of x) for x [rows of all parts, width].
  template <class Body>
  void for_each_part(std::span<const MlpPart> parts, const Buffer& x, int64_t width,
                     const Body& body);
  /// Observes each part's rows of x, [rows of all parts, width], as its input.
  void observe_parts(std::span<const MlpPart> parts, Role role, const Buffer& x, int64_t width);

  /// Experts that run together, because their rows fit the activations.
  struct ExpertWave {
    int64_t first = 0, count = 0;  ///< rows, among those of all experts
    std::vector<MlpPart> parts = {};
  };
  /// Computes the router's logits of every row, of the experts and the shared gate.
  void score_experts(const float* hidden);
  /// Chooses experts by the logits; the number of rows of each.
  std::vector<int32_t> route();
  /// Adds the sum of the chosen experts and the shared expert to out. Call after score_experts.
  void mix_experts(float* out);
  /// Adds the sum of the chosen experts to out, [rows, width of their outputs].
  void mix_chosen(float* out);
  /// Whether experts read a latent of the hidden state.
  bool has_latent() const { return layer().moe.in.matrix != nullptr; }
  /// What experts read, [rows, expert_width()].
  const Buffer& expert_input() const {
    return has_latent() ? buffers_.expert_input : buffers_.normed;
  }
  int64_t experts_per_token() const {
    return own().experts_per_token > 0 ? own().experts_per_token : config_.moe.experts_per_token;
  }
  int64_t expert_width() const {
    return has_latent() ? config_.moe.latent_size : config_.hidden_size;
  }
  /// Adds the experts of a wave to out, [rows, expert_width()].
  void add_experts(const ExpertWave& wave, bool is_observed, float* out);
  /// Adds the shared expert to out.
  void add_shared(const PackedMlp& shared, float* out);
  /// Adds a shared expert that the router scores to out.
  void add_scored(int64_t index, float* out);
  /// Writes the rows of the wave's tokens to gathered, weighed where weights multiply inputs.
  void gather(const ExpertWave& wave);
  /// Observes the inputs of every expert for all tokens.
  void show_experts();
  /// Rows of each segment that are in tokens, which ascend.
  std::vector<Segment> segments_of(std::span<const int32_t> tokens) const;
  /// Makes rows of zeros of that width.
  float* cleared(const Buffer& rows_of_width, int64_t width);

  bool shows_all_experts_ = false;
  Buffer expert_counts_;  ///< of RouteArgs
};

}  // namespace kvcal
