// Phi-3, 3.5 and 4 (Abdin et al. 2024): Llama with fused projections, in files too, and LongRoPE.
#include "loam/model/families/llama_like.h"

namespace loam {
namespace {

constexpr int64_t kOriginalContext = 4096;  // where none is stated

ModelConfig read(const Json& json) {
  Settings s(json);
  LlamaDefaults defaults;
  defaults.norm_eps = 1e-5;
  ModelConfig c = read_llama_like(s, defaults);
  c.window = read_window(json, s, 0);
  read_rope(s, c, {.theta = 10000, .partial = 1, .original_context = kOriginalContext});
  if (c.rope_scaling.kind != RopeScalingKind::none && c.rope_scaling.kind != RopeScalingKind::longrope) {
    fail(ErrorCode::kBadFormat, "\"rope_scaling\": Phi-3 has none but \"longrope\"");
  }
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) s.require(key, false);
  // Its files name the code of its makers, which transformers has as its own.
  s.ignore({"auto_map", "resid_pdrop", "embd_pdrop", "full_attn_mod", "interpolate_factor"});
  s.finish();
  return c;
}

Json write(const ModelConfig& c) {
  if (c.rope_scaling.kind == RopeScalingKind::longrope && c.heads * c.head_dim != c.dim) {
    fail(ErrorCode::kInvalidArgument, "transformers counts the factors of longrope by hidden_size / heads");
  }
  Json json = write_llama_like(c);
  json["sliding_window"] = c.window > 0 ? Json(c.window) : Json();
  const int64_t original = c.rope_scaling.original_context;
  json["original_max_position_embeddings"] = original > 0 ? original : kOriginalContext;
  json["resid_pdrop"] = 0.0;
  json["embd_pdrop"] = 0.0;
  write_rope(json, c);
  return json;
}

std::vector<TensorRule> rules(const ModelConfig& c) {
  const std::string layer = "model.layers.{}.";
  std::vector<TensorRule> all{
      {"model.embed_tokens.weight", "embedding"},
      {layer + "input_layernorm.weight", "layers.{}.attention_norm.weight"},
      {layer + "post_attention_layernorm.weight", "layers.{}.mlp_norm.weight"},
      {layer + "self_attn.qkv_proj.weight", "layers.{}.attention.qkv", "", false, RowOrder::rotary},
      {layer + "self_attn.o_proj.weight", "layers.{}.attention.out"},
      {layer + "mlp.gate_up_proj.weight", "layers.{}.mlp.up"},
      {layer + "mlp.down_proj.weight", "layers.{}.mlp.down"},
      {"model.norm.weight", "norm.weight"}};
  if (!c.tied_embeddings) all.push_back({"lm_head.weight", "head"});
  return all;
}

}  // namespace

const Family kPhi3Family{"phi3",
                         "Phi3ForCausalLM",
                         "Phi3ForSequenceClassification",
                         "model.",
                         "lm_head.weight",
                         {".rotary_emb.inv_freq"},
                         read,
                         write,
                         rules};

}  // namespace loam
