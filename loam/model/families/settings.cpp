#include "loam/model/families/settings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "loam/base/log.h"
#include "loam/base/utf8.h"

namespace loam {
namespace {

// The first name of a kind is the one that is written.
constexpr std::pair<const char*, ActivationKind> kActivations[] = {
    {"silu", ActivationKind::silu},           {"swish", ActivationKind::silu},
    {"gelu", ActivationKind::gelu},           {"gelu_python", ActivationKind::gelu},
    {"gelu_new", ActivationKind::gelu_tanh},  {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
    {"gelu_fast", ActivationKind::gelu_tanh}, {"gelu_python_tanh", ActivationKind::gelu_tanh},
    {"relu", ActivationKind::relu},           {"relu2", ActivationKind::relu_squared},
};

// Mean nothing for the forward pass of a decoder-only model.
constexpr const char* kWithoutEffect[] = {
    "architectures",
    "model_type",
    "transformers_version",
    "use_cache",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "_name_or_path",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "attention_dropout",
    "gradient_checkpointing",
    "return_dict",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "torchscript",
    "tf_legacy_loss",
    "use_bfloat16",
    "pruned_heads",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "tokenizer_class",
    "prefix",
    "chunk_size_feed_forward",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "bad_words_ids",
    "begin_suppress_tokens",
    "suppress_tokens",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "pretraining_tp",
    "is_decoder",
    "classifier_dropout",
    "cache_implementation",
    // What other programs note.
    "_num_labels",
    "is_llama_config",
    "max_sequence_length",
    "rope_interleaved",
    "transformers.js_config",
    "unsloth_fixed",
    "unsloth_version",
};

// Would change what the model computes.
constexpr const char* kUnsupported[] = {
    "sliding_window",
    "use_sliding_window",
    "layer_types",
    "quantization_config",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "attention_multiplier",
    "embedding_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "logit_scale",
    "use_qk_norm",
    "qk_norm",
    "num_local_experts",
    "num_experts",
    "moe_intermediate_size",
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_hidden_size",
    "no_rope_layers",
    "rotary_pct",
    "partial_rotary_factor",
    "rope_local_base_freq",
    "attention_chunk_size",
    "use_mrope",
    "text_config",
};

bool is_empty(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_bool()) return !value.as_bool();
  if (value.is_array()) return value.as_array().empty();
  if (value.is_object()) return value.as_object().empty();
  return false;
}

std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  return printable(value.dump(), false, kLongest);
}

[[noreturn]] void fail_kind(const char* key, const char* expected, const Json& value) {
  fail(ErrorCode::kBadFormat, "\"{}\": expected {}, found {}", key, expected, shown(value));
}

}  // namespace

Settings::Settings(const Json& json) : json_(json) {
  if (!json.is_object()) fail(ErrorCode::kBadFormat, "the configuration is not an object");
}

const Json* Settings::value(const char* key) {
  seen_.insert(key);
  const Json* found = json_.find(key);
  return found && found->is_null() ? nullptr : found;
}

int64_t Settings::integer(const char* key) {
  if (!value(key)) fail(ErrorCode::kBadFormat, "\"{}\" is missing", key);
  return integer(key, 0);
}

int64_t Settings::integer(const char* key, int64_t fallback) {
  const Json* found = value(key);
  if (!found) return fallback;
  if (!found->is_int()) fail_kind(key, "a whole number", *found);
  return found->as_int();
}

int64_t Settings::layers(const char* key) {
  constexpr int64_t kMost = 4096;  // as derive() has it
  const int64_t layers = integer(key);
  if (layers < 1 || layers > kMost) fail(ErrorCode::kBadFormat, "\"{}\" is {}", key, layers);
  return layers;
}

double Settings::number(const char* key, double fallback) {
  const Json* found = value(key);
  if (!found) return fallback;
  if (!found->is_number()) fail_kind(key, "a number", *found);
  return found->as_double();
}

bool Settings::flag(const char* key, bool fallback) {
  const Json* found = value(key);
  if (!found) return fallback;
  if (!found->is_bool()) fail_kind(key, "true or false", *found);
  return found->as_bool();
}

ActivationKind Settings::activation(const char* key, ActivationKind fallback) {
  const Json* found = value(key);
  if (!found) return fallback;
  for (const auto& [name, kind] : kActivations) {
    if (found->is_string() && found->as_string() == name) return kind;
  }
  fail(ErrorCode::kBadFormat, "\"{}\": activation {} is not supported", key, shown(*found));
}

void Settings::require(const char* key, const Json& neutral) {
  const Json* found = value(key);
  if (!found || *found == neutral) return;
  if (found->is_number() && neutral.is_number() && found->as_double() == neutral.as_double()) return;
  fail(ErrorCode::kBadFormat, "\"{}\": {} is not supported", key, shown(*found));
}

void Settings::ignore(std::initializer_list<const char*> keys) { seen_.insert(keys.begin(), keys.end()); }

// Weights have the dtype that their file states, which loam goes by; what else is stated must be a dtype, and one.
void Settings::check_dtype() {
  constexpr std::string_view kNames[] = {"float32",  "float",   "float16", "half",
                                         "bfloat16", "float64", "double",  "auto"};
  std::string stated;
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json* found = value(key);
    if (!found) continue;
    std::string name = found->is_string() ? found->as_string() : "";
    if (name.starts_with("torch.")) name = name.substr(6);
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) {
      fail(ErrorCode::kBadFormat, "\"{}\": {} is no dtype of weights that is known here", key, shown(*found));
    }
    if (!stated.empty() && name != stated) {
      fail(ErrorCode::kBadFormat, "\"torch_dtype\" is {}, but \"dtype\" is {}", stated, name);
    }
    stated = name;
  }
}

void Settings::finish() {
  check_dtype();
  require("is_causal", true);
  for (const char* key : kUnsupported) {
    if (seen_.contains(key)) continue;
    const Json* found = value(key);
    if (found && !is_empty(*found)) fail(ErrorCode::kBadFormat, "\"{}\": {} is not supported", key, shown(*found));
  }
  if (!seen_.contains("auto_map") && value("auto_map")) {
    log_warn("config.json: \"auto_map\" names code that is not run: the model is what \"model_type\" says");
  }
  seen_.insert(std::begin(kWithoutEffect), std::end(kWithoutEffect));
  for (const auto& [key, found] : json_.as_object()) {
    if (seen_.contains(key) || (is_empty(found) && !found.is_bool())) continue;
    log_warn("config.json: \"{}\" is not known and has no effect", printable(key, false, 100));
  }
}

const char* activation_name(ActivationKind kind) {
  for (const auto& [name, named] : kActivations) {
    if (named == kind) return name;
  }
  fail(ErrorCode::kInternal, "activation: a kind without a name");
}

}  // namespace loam
