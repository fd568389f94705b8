// The views of every kernel's arguments: visit_views(args, f) calls f(View&, Access) for each, absent ones too. For
// accounts of traffic, and for tests that carry arguments to another device.
#pragma once

#include "loam/kernels/kernel_table.h"

namespace loam {

enum class Access : uint8_t { read, write, update };  // update: what is there counts, and changes

constexpr Access written(bool accumulate) { return accumulate ? Access::update : Access::write; }

template <class F>
void visit_views(FillArgs& a, F&& f) {
  f(a.out, Access::write);
}
template <class F>
void visit_views(CopyArgs& a, F&& f) {
  f(a.in, Access::read);
  f(a.out, written(a.accumulate));
}
template <class F>
void visit_views(AddArgs& a, F&& f) {
  f(a.a, Access::read);
  f(a.b, Access::read);
  f(a.out, Access::write);
}
template <class F>
void visit_views(ScaleArgs& a, F&& f) {
  f(a.in, Access::read);
  f(a.out, Access::write);
}
template <class F>
void visit_views(SumRowsArgs& a, F&& f) {
  f(a.in, Access::read);
  f(a.out, written(a.accumulate));
}
template <class F>
void visit_views(MatmulArgs& a, F&& f) {
  f(a.a, Access::read);
  f(a.b, Access::read);
  f(a.bias, Access::read);
  f(a.c, written(a.accumulate));
}
template <class F>
void visit_views(EmbeddingFwdArgs& a, F&& f) {
  f(a.ids, Access::read);
  f(a.table, Access::read);
  f(a.out, Access::write);
}
template <class F>
void visit_views(EmbeddingBwdArgs& a, F&& f) {
  f(a.ids, Access::read);
  f(a.d_out, Access::read);
  f(a.d_table, written(a.accumulate));
}
template <class F>
void visit_views(RmsNormFwdArgs& a, F&& f) {
  f(a.x, Access::read);
  f(a.weight, Access::read);
  f(a.out, Access::write);
  f(a.rstd, Access::write);
}
template <class F>
void visit_views(RmsNormBwdArgs& a, F&& f) {
  for (View* v : {&a.x, &a.weight, &a.rstd, &a.d_out}) f(*v, Access::read);
  f(a.d_x, written(a.accumulate_x));
  f(a.d_weight, written(a.accumulate_weight));
}
template <class F>
void visit_views(LayerNormFwdArgs& a, F&& f) {
  for (View* v : {&a.x, &a.weight, &a.bias}) f(*v, Access::read);
  for (View* v : {&a.out, &a.mean, &a.rstd}) f(*v, Access::write);
}
template <class F>
void visit_views(LayerNormBwdArgs& a, F&& f) {
  for (View* v : {&a.x, &a.weight, &a.mean, &a.rstd, &a.d_out}) f(*v, Access::read);
  f(a.d_x, written(a.accumulate_x));
  for (View* v : {&a.d_weight, &a.d_bias}) f(*v, written(a.accumulate_weight));
}
template <class F>
void visit_views(RopeArgs& a, F&& f) {
  for (View* v : {&a.in, &a.positions, &a.frequency}) f(*v, Access::read);
  f(a.out, written(a.accumulate));
}
template <class F>
void visit_views(AttentionFwdArgs& a, F&& f) {
  for (View* v : {&a.q, &a.k, &a.v, &a.mask.first_key, &a.mask.key_count, &a.logits.slopes}) f(*v, Access::read);
  for (View* v : {&a.out, &a.lse, &a.max_logit}) f(*v, Access::write);
}
template <class F>
void visit_views(AttentionBwdArgs& a, F&& f) {
  for (View* v : {&a.q, &a.k, &a.v, &a.out, &a.lse, &a.d_out, &a.mask.first_key, &a.mask.key_count, &a.logits.slopes})
    f(*v, Access::read);
  f(a.d_q, written(a.accumulate_q));
  f(a.d_k, written(a.accumulate_k));
  f(a.d_v, written(a.accumulate_v));
}
template <class F>
void visit_views(ActivationFwdArgs& a, F&& f) {
  f(a.x, Access::read);
  f(a.out, Access::write);
}
template <class F>
void visit_views(ActivationBwdArgs& a, F&& f) {
  f(a.x, Access::read);
  f(a.d_out, Access::read);
  f(a.d_x, written(a.accumulate));
}
template <class F>
void visit_views(GatedFwdArgs& a, F&& f) {
  f(a.x, Access::read);
  f(a.out, Access::write);
}
template <class F>
void visit_views(GatedBwdArgs& a, F&& f) {
  f(a.x, Access::read);
  f(a.d_out, Access::read);
  f(a.d_x, written(a.accumulate));
}
template <class F>
void visit_views(DropoutArgs& a, F&& f) {
  f(a.in, Access::read);
  f(a.out, written(a.accumulate));
}
template <class F>
void visit_views(SoftcapArgs& a, F&& f) {
  f(a.logits, Access::update);
}
template <class F>
void visit_views(LogitStatsArgs& a, F&& f) {
  f(a.logits, Access::read);
  f(a.targets, Access::read);
  for (View* v : {&a.max, &a.sum, &a.target_logit, &a.dot}) f(*v, written(!a.first));
}
template <class F>
void visit_views(LogProbArgs& a, F&& f) {
  for (View* v : {&a.max, &a.sum, &a.target_logit, &a.dot, &a.targets}) f(*v, Access::read);
  for (View* v : {&a.logp, &a.lse, &a.entropy}) f(*v, Access::write);
}
template <class F>
void visit_views(LogitBwdArgs& a, F&& f) {
  f(a.logits, Access::update);
  for (View* v : {&a.targets, &a.lse, &a.d_logp, &a.d_lse}) f(*v, Access::read);
}
template <class F>
void visit_views(CrossEntropyRowsArgs& a, F&& f) {
  f(a.logits, a.write_gradient ? Access::update : Access::read);
  f(a.targets, Access::read);
  f(a.loss, Access::write);
  f(a.z_term, Access::write);
}
template <class F>
void visit_views(SumSquaresArgs& a, F&& f) {
  f(a.x, Access::read);
}
template <class F>
void visit_views(ClipArgs&, F&&) {}
template <class F>
void visit_views(EndStepArgs&, F&&) {}
template <class F>
void visit_update(UpdateArgs& a, F&& f) {
  f(a.master, Access::update);
  f(a.weight, Access::write);
  f(a.gradient, Access::read);
}
template <class F>
void visit_views(AdamwArgs& a, F&& f) {
  visit_update(a, f);
  f(a.m, Access::update);
  f(a.v, Access::update);
}
template <class F>
void visit_views(SgdArgs& a, F&& f) {
  visit_update(a, f);
  f(a.buffer, Access::update);
}
template <class F>
void visit_views(AdagradArgs& a, F&& f) {
  visit_update(a, f);
  f(a.sum, Access::update);
}
template <class F>
void visit_views(RmspropArgs& a, F&& f) {
  visit_update(a, f);
  f(a.v, Access::update);
  f(a.buffer, Access::update);
}
template <class F>
void visit_views(LionArgs& a, F&& f) {
  visit_update(a, f);
  f(a.m, Access::update);
}
template <class F>
void visit_views(MuonMomentumArgs& a, F&& f) {
  f(a.gradient, Access::read);
  f(a.m, Access::update);
  f(a.out, Access::write);
}
template <class F>
void visit_views(MuonApplyArgs& a, F&& f) {
  visit_update(a, f);
  f(a.update, Access::read);
}
template <class F>
void visit_views(OrthogonalizeArgs& a, F&& f) {
  f(a.x, Access::update);
}

// Bytes that a call reads and writes if every element goes to memory once; what an update touches counts twice.
template <class Args>
int64_t traffic(Args args) {
  int64_t bytes = 0;
  visit_views(args, [&](const View& v, Access access) {
    if (v) bytes += v.numel() * dtype_size(v.dtype) * (access == Access::update ? 2 : 1);
  });
  return bytes;
}

}  // namespace loam
