#include "loam/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "loam/autograd/tape.h"
#include "loam/kernels/kernel_table.h"
#include "loam/nn/sequence.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/optim/schedule.h"
#include "loam/train/run_data.h"
#include "loam/train/trainer_state.h"

namespace loam {
namespace {

Numerics numerics_of(NumericsLevel level) {
  switch (level) {
    case NumericsLevel::fast:
      return Numerics::fast;
    case NumericsLevel::deterministic:
      return Numerics::deterministic;
    case NumericsLevel::exact:
      return Numerics::exact;
  }
  fail(ErrorCode::kInternal, "numerics: a level without a name");
}

// [rows, T] i32 in the device's memory.
Tensor ids_of(const ExecContext& ctx, const TokenBatch& batch, const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(*ctx.arena, {batch.rows, batch.length}, values);
}

double sum_of(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

bool has_targets(const Tensor& targets) {
  const auto ids = targets.span<int32_t>();
  return std::any_of(ids.begin(), ids.end(), [](int32_t target) { return target >= 0; });
}

// Puts host values into a tensor of the device, in order with its work.
void put(const ExecContext& ctx, const Tensor& to, const void* values) {
  if (ctx.arena->sparse() || !to) return;
  ctx.handles ? ctx.handles->upload(to.view().data, values, to.bytes()) : Tensor(to).set_bytes(values);
}

// What a step does from now on, for a profile.
void phase(const ExecContext& ctx, const char* name) {
  if (ctx.profile) ctx.profile->phase(name);
}

}  // namespace

StepMemory::StepMemory(const ExecContext& ctx, const TrainConfig& config) {
  const Shape shape{config.batch, config.data.length};
  const auto ids = [&] { return ctx.empty(shape, DType::i32, MemoryKind::other); };
  tokens = ids(), targets = ids(), positions = ids();
  if (config.data.mask_documents) first_key = ids();
  losses = ctx.empty(shape, DType::f32, MemoryKind::other);
  sums = ctx.empty({2}, DType::i64, MemoryKind::other);
  if (ctx.handles) state = ctx.empty({static_cast<int64_t>(sizeof(StepState))}, DType::u8, MemoryKind::other);
}

TrainConfig config_for_data(TrainConfig config, const TokenSetInfo& data) {
  if (config.model.vocab_size == 0) config.model.vocab_size = (data.vocab_size + 63) / 64 * 64;
  return derive(config);
}

TrainConfig config_for_device(TrainConfig config, Device device) {
  const bool gpu = device.kind == DeviceKind::cuda;
  if (config.dtype == ComputeDtype::automatic) config.dtype = gpu ? ComputeDtype::bf16 : ComputeDtype::f32;
  LOAM_CHECK(gpu || config.dtype != ComputeDtype::tf32, "dtype tf32 needs a GPU; the CPU has f32, bf16 and fp16");
  return config;
}

DType storage_dtype(ComputeDtype dtype) {
  return dtype == ComputeDtype::bf16 ? DType::bf16 : dtype == ComputeDtype::fp16 ? DType::f16 : DType::f32;
}

Trainer::State::State(const ExecContext& context, TrainConfig c, TrainingData sets)
    : ctx(context), config(config_for_device(std::move(c), ctx.device)), data(std::move(sets)), spikes(config.spikes) {
  LOAM_CHECK(config.micro_batch > 0, "micro_batch is not settled: the trainer needs a number");
  if (!data.train.empty()) {
    check_run_data(config, data);
    sources.emplace(data);
    mixture.emplace(make_mixture(config, data, sources->start(config, data)));
  }
  ctx.step = &step_state;
  ctx.seed = static_cast<uint64_t>(config.seed);
  ctx.numerics = numerics_of(config.numerics);
  ctx.tf32 = config.dtype == ComputeDtype::tf32;
  if (scales_loss()) step_state.loss_scale = kFirstLossScale;
  model = make_model(ctx, config.model, storage_dtype(config.dtype), true);
  if (mixture) {
    const TokenSetInfo& info = data.train[0].set->info();
    model.weights->initialize(ctx.seed);
    model.tokenizer = info.tokenizer_fingerprint;
    if (const int32_t end = info.end_of_text; end >= 0) {
      model.bos_id = end;
      model.eos_ids = {end};
    }
  }
  OptimizerGroups groups = optimizer_groups(*model.weights, config.optimizer);
  places = std::move(groups.places);
  optimizer = std::make_unique<Optimizer>(ctx, std::move(groups.groups), config.optimizer);
}

Trainer::Trainer(const ExecContext& ctx, TrainConfig config, TrainingData data)
    : state_(std::make_unique<State>(ctx, std::move(config), std::move(data))) {}

Trainer::Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train,
                 std::shared_ptr<const TokenSet> val)
    : Trainer(ctx, std::move(config), one_source(std::move(train), std::move(val))) {}

Trainer::~Trainer() = default;

int64_t Trainer::steps_done() const { return state_->steps_done; }
int64_t Trainer::steps_launched() const { return state_->steps_done + static_cast<int64_t>(state_->launched.size()); }
Model& Trainer::model() { return state_->model; }
const TrainConfig& Trainer::config() const { return state_->config; }
const TrainingData& Trainer::data() const { return state_->data; }
const Mixture& Trainer::mixture() const { return *state_->mixture; }

const std::vector<RunSource>& Trainer::sources() const { return state_->sources->sources(); }

int64_t Trainer::first_sample(int64_t step) const {
  return state_->config.overfit_one_batch ? 0 : state_->order.batch_after(step - 1) * state_->config.batch;
}

namespace {

// NaN has no sign that would say anything to who reads it.
double readable(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

// Ends a step from within, past the ops and the tape.
struct GivenUp {};

}  // namespace

StepResult Trainer::step(const StopFunction& stop) {
  LOAM_CHECK(state_->launched.empty(), "trainer: results of {} launched steps were not taken", state_->launched.size());
  launch(stop);
  const StepResult result = *next_result(true);
  phase(state_->ctx, nullptr);
  return result;
}

void Trainer::launch(const StopFunction& stop) {
  State& s = *state_;
  const TrainConfig& config = s.config;
  LOAM_CHECK(s.launched.size() < kStepsAhead && (s.launched.empty() || s.launched.back().state),
             "trainer: a launch before the results of the {} steps before it were taken", s.launched.size());
  LaunchedStep step;
  StepResult& result = step.result;
  result.step = steps_launched() + 1;
  phase(s.ctx, "data");
  step.first_sample = first_sample(result.step);
  s.mixture->fill(step.first_sample, config.batch, step.batch);
  result.targets = step.batch.target_count();
  result.learning_rate = learning_rate(config.optimizer, result.step - 1, config.steps);
  step.row_losses.assign(static_cast<size_t>(config.batch), 0);
  if (result.targets > 0) {
    s.run_step(step, stop);
  } else {
    result.skipped = true;
  }
  s.launched.push_back(std::move(step));
}

std::optional<StepResult> Trainer::next_result(bool wait) {
  State& s = *state_;
  if (s.launched.empty()) return std::nullopt;
  if (s.launched.front().state && !wait && s.launched.size() < kStepsAhead) return std::nullopt;
  s.last = std::move(s.launched.front());
  s.launched.pop_front();
  StepResult& result = s.last.result;
  if (s.last.state) {
    std::memcpy(&s.step_state, s.last.state->wait(), sizeof s.step_state);
    const auto* losses = static_cast<const float*>(s.last.losses->wait());
    s.read(s.last, {losses, s.last.batch.targets.size()});
    if (s.judge(result)) s.finish(result);
    s.last.state.reset();
    s.last.losses.reset();
  }
  if (result.abandoned) {
    s.launched.clear();
    result.step = s.steps_done;
  }
  s.steps_done = result.step;
  if (!result.abandoned && !result.skipped) s.add_targets();
  return result;
}

void Trainer::State::add_targets() {
  for (int64_t row = 0; row < last.batch.rows; ++row) {
    const std::span<const int32_t> targets = last.batch.row(row).targets;
    const auto none = std::count(targets.begin(), targets.end(), -1);
    sources->add_targets(mixture->name(mixture->place(last.first_sample + row).source),
                         static_cast<int64_t>(targets.size()) - none);
  }
}

// In order with the steps under way: a copy waits for the work before it. Half a megabyte takes a GPU some 20 us of a
// step of 100 ms, less than a second stream and a second set of tensors are worth.
void Trainer::State::send(const LaunchedStep& step) {
  if (!memory) memory.emplace(ctx, config);
  if (memory->state) ctx.step = static_cast<StepState*>(memory->state.view().data);
  optimizer->prepare_step(step_state, step.result.learning_rate, step_state.updates);
  step_state.first_sample = step.first_sample;
  step_state.loss_factor = 1.0f / static_cast<float>(step.result.targets);
  put(ctx, memory->tokens, step.batch.tokens.data());
  put(ctx, memory->targets, step.batch.targets.data());
  put(ctx, memory->positions, step.batch.positions.data());
  put(ctx, memory->first_key, step.batch.first_key.data());
  if (!memory->state) return;
  // Behind a step under way the device alone knows the rest.
  const int64_t known = launched.empty() ? sizeof(StepState) : sizeof(StepInputs);
  put(ctx, memory->state.narrow(0, 0, known), &step_state);
}

bool Trainer::State::make_gradients(const StopFunction& stop, StepDetails* details) {
  ParamStore& weights = *model.weights;
  phase(ctx, "forward");
  weights.clear_gradients();
  ctx.kernels->fill(ctx, {memory->sums, 0.0f});
  ctx.kernels->fill(ctx, {memory->losses, 0.0f});
  for (int64_t row = 0; row < config.batch; row += config.micro_batch) {
    const auto part = [&](const Tensor& whole) { return whole ? whole.narrow(0, row, config.micro_batch) : Tensor(); };
    if (ctx.device.kind == DeviceKind::cpu && !has_targets(part(memory->targets))) continue;  // its gradient is 0
    Tape tape;
    if (stop) {
      tape.before_node([&] {
        if (stop(row, config.batch)) throw GivenUp{};
      });
    }
    try {
      phase(ctx, "forward");
      Context micro(ctx, &tape);
      micro.first_row = row;
      FullSequence sequence(part(memory->positions), part(memory->first_key));
      const Transformer& transformer = *model.transformer;
      const Tensor tokens = part(memory->tokens);
      // The hidden states are not held: nothing of backward needs them.
      const ops::CrossEntropy loss =
          ops::cross_entropy(micro,
                             details ? details->hidden(micro, transformer, tokens, sequence, config.recompute)
                                     : transformer.hidden(micro, tokens, sequence, config.recompute),
                             transformer.head(), part(memory->targets), 1, static_cast<float>(config.z_loss));
      ctx.kernels->copy(ctx, {loss.losses, part(memory->losses).reshape(loss.losses.shape())});
      phase(ctx, "backward");
      tape.backward(micro, loss.loss);
    } catch (const GivenUp&) {
      return false;
    }
  }
  phase(ctx, "optimizer");
  weights.finish_gradients(ctx);
  ctx.kernels->sum_squares(ctx, {memory->losses.reshape({memory->losses.numel()}), memory->sum(1)});
  clip_gradients(ctx, optimizer->groups(), config.optimizer.clip_norm, memory->sum(0));
  return true;
}

void Trainer::State::fetch_state() {
  phase(ctx, "read");
  if (memory->state) std::memcpy(&step_state, memory->state.to_host().view().data, sizeof step_state);
}

void Trainer::State::read(LaunchedStep& step, std::span<const float> losses) {
  const auto length = static_cast<size_t>(config.data.length);
  double total = 0;
  for (size_t row = 0; row < step.row_losses.size(); ++row) {
    step.row_losses[row] = sum_of(losses.subspan(row * length, length));
    total += step.row_losses[row];
  }
  step.result.loss = readable(total / static_cast<double>(step.result.targets));
  step.result.grad_norm = readable(step_state.gradient_norm);
}

bool Trainer::State::judge(StepResult& result) {
  result.overflow = scales_loss() && step_state.step_scale > kLeastLossScale && std::isfinite(*result.loss) &&
                    !std::isfinite(*result.grad_norm);
  if (result.overflow) return true;
  if (config.spikes.action != SpikeAction::off) result.spike = spikes.judge(*result.loss, *result.grad_norm);
  const SpikeAction action = result.spike ? config.spikes.action : SpikeAction::off;
  // Where the loss is not finite the gradients are worth nothing, even where they are numbers.
  result.abandoned = action == SpikeAction::rewind || (action != SpikeAction::skip && !std::isfinite(*result.loss));
  if (action == SpikeAction::skip) step_state.skip = 1;
  return !result.abandoned;
}

void Trainer::State::update(StepDetails* details) {
  if (details) details->before_update();
  phase(ctx, "optimizer");
  optimizer->step(ctx);
  ctx.kernels->end_step(ctx, {.growth_interval = scales_loss() ? kGrowthInterval : 0});
  model.weights->mark_changed();
}

void Trainer::State::finish(StepResult& result) {
  result.skipped = step_state.skip != 0;
  for (LayerDetail& layer : result.layers) layer.gradient_norm /= step_state.step_scale;
  if (scales_loss()) result.loss_scale = step_state.loss_scale;
  if (!result.skipped) spikes.add(*result.loss, *result.grad_norm);
}

// The first step runs op by op, which finds algorithms and takes memory; the second is recorded.
void Trainer::State::launch(LaunchedStep& step, StepDetails* details) {
  const auto work = [this](StepDetails* watch) {
    make_gradients({}, watch);
    update(watch);
  };
  if (details || ctx.profile || !warm) {
    work(details);
    if (details) step.result.layers = details->after_update();
    warm = warm || (!details && !ctx.profile);
  } else {
    if (!recording) {
      ctx.arena->keep_segments();
      recording = ctx.handles->record([work] { work(nullptr); });
    }
    recording->replay();
    model.weights->mark_changed();
  }
  phase(ctx, "read");
  step.losses = ctx.handles->download(memory->losses.view().data, memory->losses.bytes());
  step.state = ctx.handles->download(memory->state.view().data, memory->state.bytes());
}

void Trainer::State::run_step(LaunchedStep& step, const StopFunction& stop) {
  StepResult& result = step.result;
  send(step);
  std::optional<StepDetails> details;
  if (config.detail_every > 0 && result.step % config.detail_every == 0)
    details.emplace(ctx, *model.weights, [this](int32_t index) { return master(index); });
  StepDetails* const watch = details ? &*details : nullptr;
  const bool decides = config.spikes.action == SpikeAction::skip || config.spikes.action == SpikeAction::rewind;
  if (ctx.handles && !ctx.arena->sparse() && !decides) return launch(step, watch);
  result.abandoned = !make_gradients(stop, watch);
  if (result.abandoned) return;
  fetch_state();
  read(step, memory->losses.to_host().span<float>());
  if (!judge(result)) return;
  put(ctx, memory->state, &step_state);
  update(watch);
  if (watch) result.layers = watch->after_update();
  fetch_state();
  finish(result);
}

Json Trainer::describe_rows(const std::function<std::string(std::span<const int32_t>)>& decode) const {
  const State& s = *state_;
  Json rows = Json::array();
  const auto length = static_cast<size_t>(s.last.batch.length);
  for (size_t r = 0; r < static_cast<size_t>(s.last.batch.rows); ++r) {
    const auto ids = std::span<const int32_t>(s.last.batch.tokens).subspan(r * length, length);
    const auto targets = std::span<const int32_t>(s.last.batch.targets).subspan(r * length, length);
    const auto count = std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
    Json row = Json::object(), list = Json::array();
    row["sample"] = s.last.first_sample + static_cast<int64_t>(r);
    row["targets"] = static_cast<int64_t>(count);
    row["loss"] = count > 0 ? Json(s.last.row_losses[r] / static_cast<double>(count)) : Json();
    for (const int32_t id : ids) list.push_back(int64_t{id});
    row["ids"] = std::move(list);
    if (decode) row["text"] = decode(ids);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::optional<ValResult> Trainer::validate(const StopFunction& stop, size_t set) {
  State& s = *state_;
  if (set >= s.data.val.size() || s.data.val[set].set->tokens() < 2) return std::nullopt;
  const std::shared_ptr<const TokenSet>& val = s.data.val[set].set;
  LoaderOptions options = loader_options(s.config);
  options.shuffle = options.best_fit = false;
  options.length = std::min(options.length, val->tokens() - 1);  // a set shorter than a row is one row
  const Loader loader(val, options);
  int64_t rows = loader.samples_per_epoch();
  if (s.config.val_rows > 0) rows = std::min(rows, s.config.val_rows);

  ValResult result;
  double total = 0;
  TokenBatch rows_at_once;
  const Context ctx(s.ctx);
  for (int64_t row = 0; row < rows; row += s.config.micro_batch) {
    if (row > 0 && stop && stop(row, rows)) return std::nullopt;
    const int64_t count = std::min(s.config.micro_batch, rows - row);
    loader.fill(row, count, rows_at_once);
    const TokenBatch& batch = rows_at_once;
    if (batch.target_count() == 0) continue;
    const auto ids = [&](const std::vector<int32_t>& values) { return ids_of(s.ctx, batch, values); };
    FullSequence sequence(ids(batch.positions), s.config.data.mask_documents ? ids(batch.first_key) : Tensor());
    const Var hidden = s.model.transformer->hidden(ctx, ids(batch.tokens), sequence);
    const Tensor losses = ops::cross_entropy(ctx, hidden, s.model.transformer->head(), ids(batch.targets), 1).losses;
    total += sum_of(losses.to_host().span<float>());
    result.targets += batch.target_count();
  }
  if (result.targets == 0) return std::nullopt;
  result.loss = readable(total / static_cast<double>(result.targets));
  const TokenSetInfo& info = val->info();
  if (info.text_bytes > 0) {
    result.bits_per_byte =
        result.loss / M_LN2 * static_cast<double>(info.tokens) / static_cast<double>(info.text_bytes);
  }
  return result;
}

}  // namespace loam
