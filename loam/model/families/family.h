// A family says how a model's configuration and tensors are written in Hugging Face's form. It is a table: no family
// has forward code.
#pragma once

#include <string>
#include <vector>

#include "loam/base/json.h"
#include "loam/config/model_config.h"

namespace loam {

// One tensor of the file and the parameter (or row slice of a fused parameter) it fills. "{}" stands for the layer's
// number.
struct TensorRule {
  std::string file_name;    // "model.layers.{}.self_attn.q_proj.weight"
  std::string param;        // "layers.{}.attention.qkv"
  std::string slice = {};   // "q", or "" for the whole parameter
  bool transposed = false;  // stored [in, out] in the file (GPT-2's Conv1D)
  bool rotary = false;      // rows of rotated heads: the file has them in the order of RopePairs::half
};

struct Family {
  std::string name;                           // model_type of config.json: "llama", "gpt2"
  std::string architecture;                   // "LlamaForCausalLM"
  std::string prefix;                         // of all names but the head's; files of the bare model lack it
  std::vector<std::string> ignored_suffixes;  // of buffers that old files hold and that are no weights
  ModelConfig (*read)(const Json& config);    // Error{kBadFormat} for a setting that is not supported; a warning for an
                                              // unknown key: never ignored
  Json (*write)(const ModelConfig& config);
  bool (*fits)(const ModelConfig& config);  // can this configuration be written as this family?
  std::vector<TensorRule> (*rules)(const ModelConfig& config);
};

const std::vector<const Family*>& families();
const Family& family_named(const std::string& model_type);  // Error{kNotFound} that lists the known ones
const Family& family_for(const ModelConfig& config);        // the first that fits; Error if none does

extern const Family kLlamaFamily;
extern const Family kGpt2Family;

}  // namespace loam
