// A family says how a model's configuration and tensors are written in Hugging Face's form. It is a table: no family
// has forward code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loam/base/json.h"
#include "loam/config/model_config.h"

namespace loam {

// The order of a tensor's rows in the file.
enum class RowOrder : uint8_t {
  plain,
  rotary,  // rows of rotated heads: the file has them in the order of RopePairs::half
  heads,   // of fused q, k and v: head by head, each with its rows of q, k and v (GPT-NeoX)
};

// One tensor of the file and the parameter (or row slice of a fused parameter) it fills. "{}" stands for the layer's
// number.
struct TensorRule {
  std::string file_name;    // "model.layers.{}.self_attn.q_proj.weight"
  std::string param;        // "layers.{}.attention.qkv"
  std::string slice = {};   // "q", or "" for the whole parameter
  bool transposed = false;  // stored [in, out] in the file (GPT-2's Conv1D)
  RowOrder order = RowOrder::plain;
};

struct Family {
  std::string name;                           // model_type of config.json: "llama", "gpt2"
  std::string architecture;                   // "LlamaForCausalLM"
  std::string classifier;                     // with a scalar head: "LlamaForSequenceClassification"
  std::string prefix;                         // of all names but the head's; files of the bare model lack it
  std::string head;                           // the tensor of a language model's head
  std::vector<std::string> ignored_suffixes;  // of buffers that old files hold and that are no weights
  ModelConfig (*read)(const Json& config);    // Error{kBadFormat} for a setting that is not supported; a warning for an
                                              // unknown key: never ignored
  Json (*write)(const ModelConfig& config);   // of a configuration that the family may not hold: can_hold() knows
  std::vector<TensorRule> (*rules)(const ModelConfig& config);
};

const std::vector<const Family*>& families();
const Family& family_named(const std::string& model_type);  // Error{kNotFound} that lists the known ones

// Do two derived configurations, with equal weights, compute the same? They may differ in how weights begin and in what
// training drops.
bool computes_the_same(const ModelConfig& a, const ModelConfig& b);

// Can a derived configuration be written as this family? If what was written, read again, computes the same, but for
// the order of rotated rows, which is changed where it must be.
bool can_hold(const Family& family, const ModelConfig& config);
// The settings that would be others then, "norm: "layer" -> "rms"": none if the family can hold it. nullopt if it has
// no way to write it at all.
std::optional<std::vector<std::string>> changes_as(const Family& family, const ModelConfig& config);
const Family& family_for(const ModelConfig& config);  // the first that can; loam's own form holds every one

extern const Family kLlamaFamily, kMistralFamily, kQwen2Family, kQwen3Family, kGemma2Family, kGemma3Family,
    kOlmo2Family, kSmolLm3Family, kPhi3Family, kGptNeoxFamily, kGpt2Family, kLoamFamily;

}  // namespace loam
