#include "loam/autograd/tape.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

#include "loam/autograd/gradient_slots.h"
#include "loam/kernels/kernel_table.h"

namespace loam {
namespace {

// Sets a flag for the time of a scope.
class Raise {
 public:
  explicit Raise(bool& flag) : flag_(flag), before_(std::exchange(flag, true)) {}
  ~Raise() { flag_ = before_; }
  Raise(const Raise&) = delete;
  Raise& operator=(const Raise&) = delete;

 private:
  bool& flag_;
  bool before_;
};

// A segment kept to be run again. The tape itself replaces it by the nodes it stands for.
struct SegmentNode final : Node {
  Context ctx;
  Segment segment;
  std::vector<Var> inputs;
  std::vector<size_t> sources;  // for each output of the node: which result of the segment it is

  const char* name() const override { return "recompute"; }
  void backward_input(const Context&, BackwardScope&) override {
    fail(ErrorCode::kInternal, "recompute: a segment has no backward pass of its own");
  }
  void visit_saved(const std::function<void(std::string_view, const Tensor&)>& visit) const override {
    for (const Var& input : inputs) visit("input", input.value);
  }
};

bool any_trainable(std::span<const ParamRef> params) {
  return std::any_of(params.begin(), params.end(), [](const ParamRef& p) { return p.trainable(); });
}

struct Entry {
  std::unique_ptr<Node> node;
  std::vector<int32_t> inputs, outputs;
  std::vector<ParamRef> params;
  std::vector<Tensor> output_grads;  // once backward has reached the node
#ifdef LOAM_DEBUG
  std::vector<int64_t> versions;  // of the saved tensors, in the order of visit_saved
#endif
};

// What one node sees of the tape while it runs.
class EntryScope final : public BackwardScope {
 public:
  EntryScope(const Context& ctx, const Entry& entry, GradientSlots& slots) : ctx_(ctx), entry_(entry), slots_(slots) {}

  Tensor output_grad(int output) override { return entry_.output_grads[static_cast<size_t>(output)]; }

  GradTarget input_grad(int input) override {
    const int32_t id = entry_.inputs[static_cast<size_t>(input)];
    if (id < 0) return {};
    if (busy(id)) {
      late_.push_back({id, slots_.buffer(ctx_, id)});
      return {late_.back().gradient, false};
    }
    given_.push_back(id);
    return slots_.target(ctx_, id);
  }

  void pass_input_grad(int input, const Tensor& gradient) override {
    const int32_t id = entry_.inputs[static_cast<size_t>(input)];
    if (id < 0) return;
    if (busy(id)) {
      late_.push_back({id, gradient});
    } else {
      slots_.contribute(ctx_, id, gradient);
    }
  }

  GradTarget param_grad(int param) override {
    const ParamRef& ref = entry_.params[static_cast<size_t>(param)];
    return ref.trainable() ? ref.source->grad_target(ref.index) : GradTarget{};
  }

  // Adds what had to wait until the node was done.
  void finish() {
    for (const Late& late : late_) slots_.contribute(ctx_, late.id, late.gradient);
    late_.clear();
    given_.clear();
  }

 private:
  struct Late {
    int32_t id;
    Tensor gradient;
  };

  // A value that the node was given twice: its second gradient must wait until the first one is written.
  bool busy(int32_t id) const {
    for (int32_t other : given_) {
      if (slots_.overlap(id, other)) return true;
    }
    return false;
  }

  const Context& ctx_;
  const Entry& entry_;
  GradientSlots& slots_;
  std::vector<int32_t> given_;
  std::vector<Late> late_;
};

}  // namespace

struct Tape::State {
  GradientSlots slots;
  std::vector<Entry> entries;  // in order of recording
  std::vector<Entry> kept;     // have run their first half
  std::map<std::pair<ParamSource*, int32_t>, int64_t> uses;
  std::function<void(const ParamRef&)> hook;
  std::function<void()> before_node;

  bool dry = false;            // a segment runs for its values
  std::vector<ParamRef> seen;  // parameters used in the dry run
  bool replaying = false;      // nodes of a segment are recorded in backward; their uses are counted already

  bool on_tape(const Var& var) const { return var.id >= 0 && var.id < slots.size(); }

  void count(std::span<const ParamRef> params) {
    for (const ParamRef& p : params) {
      if (!p.trainable()) continue;
      if (dry) {
        seen.push_back(p);
      } else if (!replaying) {
        ++uses[{p.source, p.index}];
      }
    }
  }

  void arrived(const std::vector<ParamRef>& params) {
    for (const ParamRef& p : params) {
      if (!p.trainable()) continue;
      const auto use = uses.find({p.source, p.index});
      if (use == uses.end())
        fail(ErrorCode::kInternal, "tape: more gradients than uses of {}", p.source->name(p.index));
      if (--use->second > 0) continue;
      uses.erase(use);
      if (hook) hook(p);
    }
  }

  void check_saved([[maybe_unused]] const Entry& e) const {
#ifdef LOAM_DEBUG
    size_t i = 0;
    e.node->visit_saved([&](std::string_view what, const Tensor& t) {
      if (t && t.storage()->version != e.versions[i]) {
        fail(ErrorCode::kInternal, "tape: {} of node {} was changed after it was saved", what, e.node->name());
      }
      ++i;
    });
#endif
  }

  void push(std::unique_ptr<Node> node, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
            std::vector<ParamRef> params) {
    Entry e;
    e.node = std::move(node);
    e.inputs = std::move(inputs);
    e.outputs = std::move(outputs);
    e.params = std::move(params);
#ifdef LOAM_DEBUG
    e.node->visit_saved([&](std::string_view, const Tensor& t) { e.versions.push_back(t ? t.storage()->version : 0); });
#endif
    entries.push_back(std::move(e));
  }

  // Records the segment's nodes in place of the segment and hands them its gradients.
  void replay(const Context& ctx, Tape* tape, const Entry& e) {
    const auto& s = static_cast<const SegmentNode&>(*e.node);
    std::vector<Var> results;
    {
      const Raise raise(replaying);
      Context recording = s.ctx;
      recording.tape = tape;
      results = s.segment(recording, s.inputs);
    }
    for (size_t i = 0; i < s.sources.size(); ++i) {
      if (e.output_grads[i]) slots.contribute(ctx, results[s.sources[i]].id, e.output_grads[i]);
    }
  }

  void run(const Context& ctx, Entry e, bool keep_weight_half) {
    check_saved(e);
    EntryScope scope(ctx, e, slots);
    if (keep_weight_half && any_trainable(e.params)) {
      e.node->backward_input(ctx, scope);
      scope.finish();
      kept.push_back(std::move(e));
      return;
    }
    e.node->backward(ctx, scope);
    scope.finish();
    arrived(e.params);
  }

  void walk(const Context& ctx, Tape* tape, const BackwardOptions& options) {
    while (!entries.empty()) {
      if (before_node) before_node();
      Entry e = std::move(entries.back());
      entries.pop_back();
      bool reached = false;
      for (int32_t id : e.outputs) {
        e.output_grads.push_back(slots.take(ctx, id));
        reached |= static_cast<bool>(e.output_grads.back());
      }
      if (!reached) {
        arrived(e.params);
      } else if (dynamic_cast<const SegmentNode*>(e.node.get())) {
        check_saved(e);
        replay(ctx, tape, e);
      } else {
        run(ctx, std::move(e), options.keep_weight_half);
      }
    }
    slots.finish(ctx);
  }

  template <class Visit>
  void each_saved(const Visit& visit) const {
    for (const auto* list : {&entries, &kept}) {
      for (const Entry& e : *list) {
        e.node->visit_saved([&](std::string_view what, const Tensor& t) {
          if (t) visit(e.node->name(), what, t);
        });
      }
    }
  }
};

Tape::Tape() : state_(std::make_unique<State>()) {}
Tape::~Tape() = default;

Var Tape::leaf(Tensor value) {
  LOAM_CHECK(value && is_float(value.dtype()), "tape: a leaf must be a tensor of f32, bf16 or f16");
  const int32_t id = state_->slots.add(value);
  state_->slots.mark_leaf(id);
  return Var(std::move(value), id);
}

Tensor Tape::grad(const Var& leaf) const {
  LOAM_CHECK(state_->on_tape(leaf), "tape: asked for the gradient of a value that is not on the tape");
  return state_->slots.peek(leaf.id);
}

bool Tape::wants_grad(const Var& var) const { return state_->on_tape(var); }
bool Tape::keeps() const { return !state_->dry; }

void Tape::record(std::unique_ptr<Node> node, std::span<const Var> inputs, std::span<Var* const> outputs,
                  std::span<const ParamRef> params) {
  State& s = *state_;
  if (s.before_node) s.before_node();
  bool wanted = false;
  std::vector<int32_t> input_ids, output_ids;
  for (const Var& input : inputs) {
    input_ids.push_back(s.on_tape(input) ? input.id : -1);
    wanted |= input_ids.back() >= 0;
  }
  if (!wanted && !any_trainable(params)) return;
  s.count(params);
  for (Var* output : outputs) {
    output->id = s.slots.add(output->value);
    output_ids.push_back(output->id);
  }
  if (s.dry) return;
  s.push(std::move(node), std::move(input_ids), std::move(output_ids), {params.begin(), params.end()});
}

Var Tape::part(const Var& parent, const Tensor& view) {
  State& s = *state_;
  if (!s.on_tape(parent)) return Var(view);
  return Var(view, s.dry ? s.slots.add(view) : s.slots.add_part(parent.id, parent.value, view));
}

std::vector<Var> Tape::record_segment(const Context& ctx, const Segment& segment, const std::vector<Var>& inputs) {
  State& s = *state_;
  const int32_t before = s.slots.size();
  std::vector<ParamRef> outer_seen = std::exchange(s.seen, {});
  std::vector<Var> results;
  {
    const Raise raise(s.dry);
    Context dry = ctx;
    dry.tape = this;
    results = segment(dry, inputs);
  }
  const std::vector<ParamRef> params = std::exchange(s.seen, std::move(outer_seen));
  s.slots.truncate(before);

  auto node = std::make_unique<SegmentNode>();
  std::map<int32_t, int32_t> places;  // from a value of the dry run to one of the tape
  std::vector<int32_t> input_ids, output_ids;
  for (size_t i = 0; i < results.size(); ++i) {
    int32_t& id = results[i].id;
    if (id < before) continue;  // handed through, or without gradient
    if (const auto [place, fresh] = places.try_emplace(id, s.slots.size()); fresh) {
      s.slots.add(results[i].value);
      output_ids.push_back(place->second);
      node->sources.push_back(i);
    }
    id = places.at(id);
  }
  if (output_ids.empty()) return results;
  s.count(params);
  if (s.dry) return results;
  for (const Var& input : inputs) input_ids.push_back(s.on_tape(input) ? input.id : -1);
  node->ctx = ctx;
  node->segment = segment;
  node->inputs = inputs;
  s.push(std::move(node), std::move(input_ids), std::move(output_ids), params);
  return results;
}

void Tape::backward(const Context& ctx, const Var& root, BackwardOptions options) {
  LOAM_CHECK(state_->on_tape(root), "backward: the root is not on the tape: nothing upstream of it wants a gradient");
  LOAM_CHECK(root.value.numel() == 1 && root.dtype() == DType::f32, "backward: the root is {} {}, not one f32 value",
             dtype_name(root.dtype()), root.shape().str());
  const Tensor one = ctx.empty(root.shape(), DType::f32, MemoryKind::gradients);
  ctx.kernels->fill(ctx, {one, 1.0f});
  backward(ctx, std::span(&root, 1), std::span(&one, 1), options);
}

void Tape::backward(const Context& ctx, std::span<const Var> roots, std::span<const Tensor> gradients,
                    BackwardOptions options) {
  LOAM_CHECK(roots.size() == gradients.size(), "backward: {} roots with {} gradients", roots.size(), gradients.size());
  Context plain = ctx;
  plain.tape = nullptr;
  for (size_t i = 0; i < roots.size(); ++i) {
    LOAM_CHECK(state_->on_tape(roots[i]), "backward: root {} is not on the tape", i);
    state_->slots.contribute(plain, roots[i].id, gradients[i]);
  }
  state_->walk(plain, this, options);
}

void Tape::backward_weights(const Context& ctx) {
  Context plain = ctx;
  plain.tape = nullptr;
  for (Entry& kept : std::exchange(state_->kept, {})) {
    const Entry e = std::move(kept);
    EntryScope scope(plain, e, state_->slots);
    e.node->backward_weight(plain, scope);
    state_->arrived(e.params);
  }
}

void Tape::on_param_ready(std::function<void(const ParamRef&)> hook) { state_->hook = std::move(hook); }

void Tape::before_node(std::function<void()> hook) { state_->before_node = std::move(hook); }

int64_t Tape::saved_bytes() const {
  std::unordered_set<const Storage*> seen;
  int64_t bytes = 0;
  state_->each_saved([&](const char*, std::string_view, const Tensor& t) {
    if (seen.insert(t.storage().get()).second) bytes += t.storage()->bytes();
  });
  return bytes;
}

void Tape::visit_saved(
    const std::function<void(const char* node, std::string_view what, const Tensor& tensor)>& visit) const {
  state_->each_saved(visit);
}

int64_t Tape::size() const { return static_cast<int64_t>(state_->entries.size() + state_->kept.size()); }

void Tape::clear() {
  state_->slots.clear();
  state_->entries.clear();
  state_->kept.clear();
  state_->uses.clear();
  state_->seen.clear();
}

}  // namespace loam
