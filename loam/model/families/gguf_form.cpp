#include "loam/model/families/gguf_form.h"

#include <algorithm>
#include <cmath>

#include "loam/base/log.h"
#include "loam/config/rope_scaling.h"

namespace loam {
namespace {

constexpr GgufForm kForms[] = {
    {.family = "llama",
     .architecture = "llama",
     .pairs = RopePairs::interleaved,
     .out_bias = true,
     .mlp_bias = true,
     .llama3 = true,
     .longrope = true},
    {.family = "mistral", .architecture = "llama", .pairs = RopePairs::interleaved, .llama3 = true, .longrope = true},
    {.family = "qwen2", .architecture = "qwen2", .square = true},
    {.family = "qwen3", .architecture = "qwen3"},
    {.family = "gemma2",
     .architecture = "gemma2",
     .gelu = true,
     .tied = true,
     .yarn = false,
     .always_windowed = true,
     .always_capped = true,
     .full_every = 2,
     .scaled_by_width = 46},
    {.family = "gemma3_text",
     .architecture = "gemma3",
     .gelu = true,
     .yarn = false,
     .full_every = 6,
     .scaled_by_width = 62},
    {.family = "olmo2", .architecture = "olmo2", .own_head = true, .square = true},
    {.family = "smollm3", .architecture = "smollm3", .pairs = RopePairs::interleaved, .no_rope_every = 4},
    {.family = "phi3", .architecture = "phi3", .square = true, .longrope = true},
    {.family = "gpt_neox",
     .architecture = "gptneox",
     .gelu = true,
     .own_head = true,
     .square = true,
     .biases = true,
     .out_bias = true,
     .mlp_bias = true,
     .parallel_key = true},
    {.family = "gpt2",
     .architecture = "gpt2",
     .gelu = true,
     .square = true,
     .biases = true,
     .out_bias = true,
     .mlp_bias = true},
};

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"embedding", "token_embd"},
    {"positions", "position_embd"},
    {"head", "output"},
    {"norm", "output_norm"},
    {"attention_norm", "attn_norm"},
    {"attention_post_norm", "post_attention_norm"},
    {"attention.qkv", "attn_qkv"},
    {"attention.qkv.q", "attn_q"},
    {"attention.qkv.k", "attn_k"},
    {"attention.qkv.v", "attn_v"},
    {"attention.q_norm", "attn_q_norm"},
    {"attention.k_norm", "attn_k_norm"},
    {"attention.out", "attn_output"},
    {"mlp_norm", "ffn_norm"},
    {"mlp_post_norm", "post_ffw_norm"},
    {"mlp.up", "ffn_up"},
    {"mlp.up.gate", "ffn_gate"},
    {"mlp.up.up", "ffn_up"},
    {"mlp.down", "ffn_down"},
};

bool has_window(const ModelConfig& c, int64_t layer) { return attention_span(c, layer) == AttentionSpan::window; }

bool has_windows(const ModelConfig& c) {
  bool any = false;
  for (int64_t layer = 0; layer < c.layers; ++layer) any |= has_window(c, layer);
  return any;
}

double sqrt_of(int64_t value) { return std::sqrt(static_cast<double>(value)); }

// What llama.cpp computes otherwise; "" if nothing.
std::string other_attention(const GgufForm& form, const ModelConfig& c) {
  if (form.tied && !c.tied_embeddings) return "has the embedding for its head";
  if (form.square && c.heads * c.head_dim != c.dim) return "takes the width for heads * head_dim";
  if (form.full_every == 0 && has_windows(c) && c.window < c.context_length) {
    return fmt::format("has no windows (this model has, of {} tokens; with a context of no more they would not count)",
                       c.window);
  }
  const bool by_width = form.scaled_by_width == c.layers;
  const double scale = 1 / sqrt_of(by_width ? c.dim / c.heads : c.head_dim);
  const double own = c.attention_scale > 0 ? c.attention_scale : 1 / sqrt_of(c.head_dim);
  if (std::abs(own / scale - 1) > 1e-6) return fmt::format("scales attention by {:.6g}, not {:.6g}", scale, own);
  if (form.always_capped && (c.attention_softcap == 0 || c.logit_softcap == 0)) {
    return "caps attention and logits always";
  }
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const bool none = form.no_rope_every > 0 && (layer + 1) % form.no_rope_every == 0;
    const PositionKind kind = layer_position(c, layer);
    if (c.positions == PositionKind::rope && kind != (none ? PositionKind::none : PositionKind::rope)) {
      if (form.no_rope_every == 0) return "has positions in every layer";
      return fmt::format("has no positions in every {}th layer, and no other", form.no_rope_every);
    }
  }
  return "";
}

std::string other_scaling(const GgufForm& form, const RopeScaling& s) {
  const RopeScaling defaults;
  const bool knows = s.kind != RopeScalingKind::ntk &&  // the families' files give another theta instead
                     (s.kind != RopeScalingKind::llama3 || form.llama3) &&
                     (s.kind != RopeScalingKind::longrope || form.longrope) &&
                     (s.kind != RopeScalingKind::yarn || form.yarn);
  if (!knows) {
    const auto& names = enum_names(RopeScalingKind());
    const auto name = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == s.kind; });
    return fmt::format("does not know positions scaled by {}", name->second);
  }
  if (s.kind != RopeScalingKind::yarn) return "";
  if (s.beta_fast != defaults.beta_fast || s.beta_slow != defaults.beta_slow || !s.truncate) {
    return "scales by yarn with beta_fast 32, beta_slow 1 and rounded bounds only";
  }
  return "";
}

std::string other_biases(const GgufForm& form, const ModelConfig& c) {
  if (form.biases && !(c.attention_bias && c.attention_out_bias)) return "needs biases in attention";
  if (!form.out_bias && c.attention_out_bias) return "has no bias behind attention";
  if (!form.mlp_bias && c.mlp_bias) return "has no biases in the feed-forward block";
  return "";
}

std::string other_activation(const GgufForm& form, const ModelConfig& c) {
  if (form.gelu && c.activation == ActivationKind::gelu) {
    log_warn("llama.cpp computes GELU in its tanh form, this model without: logits differ in the fourth digit or so");
    return "";
  }
  if (c.activation == (form.gelu ? ActivationKind::gelu_tanh : ActivationKind::silu)) return "";
  return form.gelu ? "has GELU for its activation" : "has SiLU for its activation";
}

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }
float f32(double value) { return static_cast<float>(value); }

// Collects the keys of one architecture.
struct Fields {
  std::string_view architecture;
  std::vector<GgufField> all = {};
  void add(std::string_view name, GgufField::Value value) {
    all.push_back({fmt::format("{}.{}", architecture, name), std::move(value)});
  }
};

void add_scaling(Fields& fields, const RopeScaling& s) {
  const auto add = [&](const char* type) { fields.add("rope.scaling.type", std::string(type)); };
  if (s.kind == RopeScalingKind::linear || s.kind == RopeScalingKind::yarn) {
    add(s.kind == RopeScalingKind::linear ? "linear" : "yarn");
    fields.add("rope.scaling.factor", f32(s.factor));
  }
  if (s.kind == RopeScalingKind::longrope) add("longrope");
  if (s.kind == RopeScalingKind::yarn || s.kind == RopeScalingKind::longrope) {
    fields.add("rope.scaling.original_context_length", u32(s.original_context));
  }
  // It multiplies what llama.cpp's own formula gives: that of YaRN's authors, and 1 for longrope.
  if (s.kind == RopeScalingKind::yarn && s.attention_factor > 0) {
    fields.add("rope.scaling.attn_factor", f32(s.attention_factor / yarn_magnitude(s.factor)));
  }
  if (s.kind == RopeScalingKind::longrope) fields.add("rope.scaling.attn_factor", f32(rope_magnitude(s)));
}

// Windows are in all layers but each n-th: n, `usual` if that is one; 0 if there is none. Beyond the last layer: all.
int64_t period_of_windows(const ModelConfig& c, int64_t usual) {
  const auto fits = [&](int64_t period) {
    for (int64_t layer = 0; layer < c.layers; ++layer) {
      if (has_window(c, layer) != ((layer + 1) % period != 0)) return false;
    }
    return true;
  };
  if (fits(usual)) return usual;
  for (int64_t period = 2; period <= c.layers + 1; ++period) {
    if (fits(period)) return period;
  }
  return 0;
}

void add_windows(Fields& fields, const GgufForm& form, const ModelConfig& c) {
  if (form.full_every == 0) return;
  const bool any = has_windows(c);
  // Where there always is one, that of the whole context changes nothing.
  if (any || form.always_windowed) {
    fields.add("attention.sliding_window", u32(any ? c.window : c.context_length));
  }
  if (!any) return;
  if (const int64_t period = period_of_windows(c, form.full_every); period != form.full_every) {
    log_warn(
        "the pattern of this model's windows is a key that older versions of llama.cpp pass over: they compute "
        "{}'s own, windows in all layers but each {}th",
        form.architecture, form.full_every);
    if (period > 0) {
      fields.add("attention.sliding_window_pattern", u32(period));
    } else {
      std::vector<bool> pattern;
      for (int64_t layer = 0; layer < c.layers; ++layer) pattern.push_back(has_window(c, layer));
      fields.add("attention.sliding_window_pattern", std::move(pattern));
    }
  }
  if (c.window_rope_theta > 0) fields.add("rope.freq_base_swa", f32(c.window_rope_theta));
}

// Says how the nearest of the families that llama.cpp has would change a model of another one.
[[noreturn]] void fail_unknown_family(const Family& family, const ModelConfig& c) {
  std::string_view nearest;
  std::optional<std::vector<std::string>> fewest;
  for (const GgufForm& form : kForms) {
    auto changes = changes_as(family_named(std::string(form.family)), c);
    if (!changes || (fewest && changes->size() >= fewest->size())) continue;
    nearest = form.family;
    fewest = std::move(changes);
  }
  std::string advice;
  if (fewest && fewest->empty()) {
    advice = fmt::format("; this model can be one of {}, which loam convert --family {} makes of it", nearest, nearest);
  } else if (fewest) {
    advice = fmt::format("; the nearest that it has, {}, would change {}", nearest,
                         config_detail::joined_names(*fewest, "; "));
  }
  fail(ErrorCode::kInvalidArgument, "GGUF: llama.cpp has no family {}{}", family.name, advice);
}

}  // namespace

const GgufForm& gguf_form(const Family& family, const ModelConfig& config) {
  for (const GgufForm& form : kForms) {
    if (form.family == family.name) return form;
  }
  fail_unknown_family(family, config);
}

void check_gguf(const GgufForm& form, const ModelConfig& c) {
  std::string other;
  if (c.head == HeadKind::scalar) other = "has a language model's head";
  if (other.empty()) other = other_attention(form, c);
  if (other.empty()) other = other_scaling(form, c.rope_scaling);
  if (other.empty()) other = other_biases(form, c);
  if (other.empty()) other = other_activation(form, c);
  if (!other.empty()) fail(ErrorCode::kInvalidArgument, "GGUF: llama.cpp's {} {}", form.architecture, other);
}

std::vector<GgufField> gguf_fields(const GgufForm& form, const ModelConfig& c) {
  Fields fields{form.architecture};
  fields.add("vocab_size", u32(c.vocab_size));
  fields.add("context_length", u32(c.context_length));
  fields.add("block_count", u32(c.layers));
  fields.add("embedding_length", u32(c.dim));
  fields.add("feed_forward_length", u32(c.ffn_dim));
  fields.add("attention.head_count", u32(c.heads));
  fields.add("attention.head_count_kv", u32(c.kv_heads));
  fields.add("attention.key_length", u32(c.head_dim));
  fields.add("attention.value_length", u32(c.head_dim));
  fields.add(c.norm == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             f32(c.norm_eps));
  if (c.positions == PositionKind::rope) {
    fields.add("rope.dimension_count", u32(c.rope_dim));
    fields.add("rope.freq_base", f32(c.rope_theta));
    add_scaling(fields, c.rope_scaling);
  }
  add_windows(fields, form, c);
  if (c.attention_softcap > 0) fields.add("attn_logit_softcapping", f32(c.attention_softcap));
  if (c.logit_softcap > 0) fields.add("final_logit_softcapping", f32(c.logit_softcap));
  if (form.parallel_key) fields.add("use_parallel_residual", c.block == BlockForm::parallel);
  return std::move(fields.all);
}

std::string gguf_name(const TensorRule& rule) {
  constexpr std::string_view kLayers = "layers.";
  std::string_view param = rule.param;
  std::string name, kind = "weight";
  if (param.starts_with(kLayers)) {
    param.remove_prefix(kLayers.size());
    const std::string_view number = param.substr(0, param.find('.'));
    name = fmt::format("blk.{}.", number);
    param.remove_prefix(number.size() + 1);
  }
  for (const std::string_view ending : {".weight", ".bias"}) {
    if (!param.ends_with(ending)) continue;
    kind = ending.substr(1);
    param.remove_suffix(ending.size());
  }
  const std::string key = std::string(param) + (rule.slice.empty() ? "" : "." + rule.slice);
  for (const auto& [own, theirs] : kNames) {
    if (own == key) return fmt::format("{}{}.{}", name, theirs, kind);
  }
  fail(ErrorCode::kInternal, "GGUF: the parameter {} has no name there", rule.param);
}

std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_factors(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  const auto narrow = [](const std::vector<double>& factors) {
    return std::vector<float>(factors.begin(), factors.end());
  };
  if (s.kind == RopeScalingKind::longrope) {
    return {{"rope_factors_long.weight", narrow(s.long_factors)},
            {"rope_factors_short.weight", narrow(s.short_factors)}};
  }
  if (s.kind != RopeScalingKind::llama3) return {};
  return {{"rope_freqs.weight", narrow(rope_stretches(c.rope_dim, c.rope_theta, s, c.context_length))}};
}

}  // namespace loam
