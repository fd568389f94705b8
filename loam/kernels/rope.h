// Rotary position embedding, Su et al. 2021 (RoFormer). Legend: N tokens, H heads, D head dim.
#pragma once

#include "loam/kernels/exec_context.h"

namespace loam {

enum class RopeLayout : uint8_t {
  interleaved,  // pairs (2k, 2k+1): the paper, llama2.c
  half,         // pairs (k, k + D/2): Hugging Face Llama, GPT-NeoX
};

// Rotates pair k of every head by the angle position * frequency[k] and stretches it by `factor`:
// (a, b) -> factor (a cos - b sin, a sin + b cos). The
// angle is computed and reduced in f32 or better from an integer position: error below 1e-3 at position 32768.
// `inverse` rotates back (and stretches all the same): the gradient.
struct RopeArgs {
  View in;         // [N,H,D], f32, bf16 or f16; last axis of stride 1
  View positions;  // [N], i32
  View frequency;  // [R/2], f32: theta^(-2k/R); R <= D, the first R elements of a head are rotated, the rest copied
  RopeLayout layout = RopeLayout::half;
  bool inverse = false;
  View out;                 // [N,H,D]; may be the same memory as `in`
  bool accumulate = false;  // out += (not with in == out)
  float factor = 1;
};

}  // namespace loam
