// How GGUF files, and llama.cpp's graphs, know a family: a table like those of Hugging Face's form. Tensors have one
// name in all of its architectures.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loam/base/gguf_writer.h"
#include "loam/config/model_config.h"
#include "loam/model/families/family.h"

namespace loam {

struct GgufForm {
  std::string_view family, architecture;
  RopePairs pairs = RopePairs::half;        // which elements of q and k the file's order of rows rotates together
  bool gelu = false;                        // the activation, in its tanh form; else silu
  bool own_head = false;                    // the head is a tensor of the file, tied or not
  bool tied = false;                        // the head is the embedding, always
  bool square = false;                      // heads * head_dim is the width
  bool biases = false;                      // behind q, k and v, and behind attention: both, always
  bool out_bias = false, mlp_bias = false;  // there may be such ones
  bool llama3 = false, longrope = false, yarn = true;  // scaled positions, beside linear ones
  bool parallel_key = false;                           // a key states the form of blocks
  bool always_windowed = false, always_capped = false;
  int64_t no_rope_every = 0;    // each n-th layer has no positions; 0: all have
  int64_t full_every = 0;       // without a list, windows are in all layers but each n-th; 0: none has one
  int64_t scaled_by_width = 0;  // a model of so many layers scales q.k by 1 / sqrt(C / H), not by 1 / sqrt(D)
};

// Error{kInvalidArgument} if llama.cpp has no such family: it names the settings that keep `config` from being written
// as one that it has.
const GgufForm& gguf_form(const Family& family, const ModelConfig& config);
// Error{kInvalidArgument} in one line unless llama.cpp's graph computes what `config`, as the family's read() gives it
// and derived, states; a warning for GELU without tanh.
void check_gguf(const GgufForm& form, const ModelConfig& config);
// The keys "ARCHITECTURE. ..."; a warning for windows in a pattern that llama.cpp's graph has not by itself.
std::vector<GgufField> gguf_fields(const GgufForm& form, const ModelConfig& config);
// The name of the tensor that holds a parameter, or a slice of one.
std::string gguf_name(const TensorRule& rule);
// The tensors [R/2] by whose elements llama.cpp divides the frequencies of pairs.
std::vector<std::pair<std::string, std::vector<float>>> gguf_rope_factors(const ModelConfig& config);

}  // namespace loam
