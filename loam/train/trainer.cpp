#include "loam/train/trainer.h"

#include <algorithm>
#include <bit>
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

DType dtype_of(ComputeDtype dtype) { return dtype == ComputeDtype::bf16 ? DType::bf16 : DType::f32; }

// [rows, T] i32 in the device's memory.
Tensor ids_of(const ExecContext& ctx, const TokenBatch& batch, const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(*ctx.arena, {batch.rows, batch.length}, values);
}

double sum_of(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

// Puts host values into a tensor of the device, in order with its work.
void put(const ExecContext& ctx, const Tensor& to, const void* values) {
  if (ctx.arena->sparse() || !to) return;
  ctx.handles ? ctx.handles->upload(to.view().data, values, to.bytes()) : Tensor(to).set_bytes(values);
}

}  // namespace

StepMemory::StepMemory(const ExecContext& ctx, const TrainConfig& config) {
  const Shape shape{config.batch, config.data.length};
  const auto ids = [&] { return ctx.empty(shape, DType::i32, MemoryKind::other); };
  tokens = ids(), targets = ids(), positions = ids();
  if (config.data.mask_documents) first_key = ids();
  losses = ctx.empty(shape, DType::f32, MemoryKind::other);
  sums = ctx.empty({2}, DType::i64, MemoryKind::other);
  if (ctx.device.kind != DeviceKind::cpu)
    state = ctx.empty({static_cast<int64_t>(sizeof(StepState))}, DType::u8, MemoryKind::other);
}

TrainConfig config_for_data(TrainConfig config, const TokenSetInfo& data) {
  if (config.model.vocab_size == 0) config.model.vocab_size = (data.vocab_size + 63) / 64 * 64;
  return derive(config);
}

Trainer::State::State(const ExecContext& context, TrainConfig c, TrainingData sets)
    : ctx(context), config(std::move(c)), data(std::move(sets)), spikes(config.spikes) {
  LOAM_CHECK(config.micro_batch > 0, "micro_batch is not settled: the trainer needs a number");
  if (!data.train.empty()) {
    check_run_data(config, data);
    sources.emplace(data);
    mixture.emplace(make_mixture(config, data, sources->start(config, data)));
  }
  ctx.step = &step_state;
  ctx.seed = static_cast<uint64_t>(config.seed);
  ctx.numerics = numerics_of(config.numerics);
  model = make_model(ctx, config.model, dtype_of(config.dtype), true);
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
  State& s = *state_;
  const TrainConfig& config = s.config;
  StepResult result;
  s.first_sample = first_sample(s.steps_done + 1);
  s.mixture->fill(s.first_sample, config.batch, s.batch);
  result.targets = s.batch.target_count();
  result.learning_rate = learning_rate(config.optimizer, s.steps_done, config.steps);
  result.step = s.steps_done + 1;
  if (result.targets > 0) {
    s.run_step(result, stop);
  } else {
    s.row_losses.assign(static_cast<size_t>(config.batch), 0);
    result.skipped = true;
  }
  if (result.abandoned) result.step = s.steps_done;
  s.steps_done = result.step;
  if (!result.abandoned && !result.skipped) s.add_targets();
  return result;
}

void Trainer::State::add_targets() {
  for (int64_t row = 0; row < batch.rows; ++row) {
    const std::span<const int32_t> targets = batch.row(row).targets;
    const auto none = std::count(targets.begin(), targets.end(), -1);
    sources->add_targets(mixture->name(mixture->place(first_sample + row).source),
                         static_cast<int64_t>(targets.size()) - none);
  }
}

void Trainer::State::send(const StepResult& result) {
  if (!memory) memory.emplace(ctx, config);
  if (memory->state) ctx.step = static_cast<StepState*>(memory->state.view().data);
  optimizer->prepare_step(step_state, result.learning_rate, updates);
  step_state.first_sample = first_sample;
  step_state.loss_factor = 1.0f / static_cast<float>(result.targets);
  put(ctx, memory->tokens, batch.tokens.data());
  put(ctx, memory->targets, batch.targets.data());
  put(ctx, memory->positions, batch.positions.data());
  put(ctx, memory->first_key, batch.first_key.data());
  put(ctx, memory->state, &step_state);
}

bool Trainer::State::make_gradients(const StopFunction& stop, StepDetails* details) {
  ParamStore& weights = *model.weights;
  weights.clear_gradients();
  ctx.kernels->fill(ctx, {memory->sums, 0.0f});
  ctx.kernels->fill(ctx, {memory->losses, 0.0f});
  for (int64_t row = 0; row < config.batch; row += config.micro_batch) {
    const auto part = [&](const Tensor& whole) { return whole ? whole.narrow(0, row, config.micro_batch) : Tensor(); };
    const auto rows =
        std::span(batch.targets)
            .subspan(static_cast<size_t>(row * batch.length), static_cast<size_t>(config.micro_batch * batch.length));
    const bool some = std::any_of(rows.begin(), rows.end(), [](int32_t target) { return target >= 0; });
    if (!some && ctx.device.kind == DeviceKind::cpu) continue;  // its gradient is 0
    Tape tape;
    if (stop) {
      tape.before_node([&] {
        if (stop(row, config.batch)) throw GivenUp{};
      });
    }
    try {
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
      tape.backward(micro, loss.loss);
    } catch (const GivenUp&) {
      return false;
    }
  }
  weights.finish_gradients(ctx);
  ctx.kernels->sum_squares(ctx, {memory->losses.reshape({memory->losses.numel()}), memory->sum(1)});
  clip_gradients(ctx, optimizer->groups(), config.optimizer.clip_norm, memory->sum(0));
  return true;
}

void Trainer::State::read(StepResult& result) {
  const Tensor losses = memory->losses.to_host(), sums = memory->sums.to_host();
  if (memory->state) std::memcpy(&step_state, memory->state.to_host().view().data, sizeof step_state);
  const auto length = static_cast<size_t>(config.data.length);
  double total = 0;
  for (size_t row = 0; row < row_losses.size(); ++row) {
    row_losses[row] = sum_of(losses.span<float>().subspan(row * length, length));
    total += row_losses[row];
  }
  result.loss = readable(total / static_cast<double>(result.targets));
  result.grad_norm = readable(std::sqrt(std::bit_cast<double>(sums.span<int64_t>()[0])));
}

bool Trainer::State::judge(StepResult& result) {
  if (config.spikes.action != SpikeAction::off) result.spike = spikes.judge(*result.loss, *result.grad_norm);
  const SpikeAction action = result.spike ? config.spikes.action : SpikeAction::off;
  // Where the loss is not finite the gradients are worth nothing, even where they are numbers.
  result.abandoned = action == SpikeAction::rewind || (action != SpikeAction::skip && !std::isfinite(*result.loss));
  if (action == SpikeAction::skip) step_state.skip = 1;
  return !result.abandoned;
}

// The first step runs op by op, which finds algorithms and takes memory; the second is recorded.
void Trainer::State::run_recorded(StepResult& result) {
  const auto work = [this] {
    make_gradients({}, nullptr);
    optimizer->step(ctx);
  };
  if (!warm) {
    work();
    warm = true;
  } else {
    if (!recording) {
      ctx.arena->keep_segments();
      recording = ctx.handles->record(work);
    }
    recording->replay();
  }
  read(result);
  judge(result);
}

void Trainer::State::run_step(StepResult& result, const StopFunction& stop) {
  ParamStore& weights = *model.weights;
  row_losses.assign(static_cast<size_t>(config.batch), 0);
  send(result);
  const bool in_detail = config.detail_every > 0 && result.step % config.detail_every == 0;
  const bool decides = config.spikes.action == SpikeAction::skip || config.spikes.action == SpikeAction::rewind;
  if (ctx.handles && !ctx.arena->sparse() && !ctx.profile && !in_detail && !decides) {
    run_recorded(result);
    if (result.abandoned) return;
  } else {
    std::optional<StepDetails> details;
    if (in_detail) details.emplace(ctx, weights, [this](int32_t index) { return master(index); });
    result.abandoned = !make_gradients(stop, details ? &*details : nullptr);
    if (result.abandoned) return;
    read(result);
    if (!judge(result)) return;
    put(ctx, memory->state, &step_state);
    if (details) details->before_update();
    optimizer->step(ctx);
    if (details) result.layers = details->after_update();
  }
  weights.mark_changed();
  result.skipped = step_state.skip != 0;
  if (result.skipped) return;
  ++updates;
  spikes.add(*result.loss, *result.grad_norm);
}

Json Trainer::describe_rows(const std::function<std::string(std::span<const int32_t>)>& decode) const {
  const State& s = *state_;
  Json rows = Json::array();
  const auto length = static_cast<size_t>(s.batch.length);
  for (size_t r = 0; r < static_cast<size_t>(s.batch.rows); ++r) {
    const auto ids = std::span<const int32_t>(s.batch.tokens).subspan(r * length, length);
    const auto targets = std::span<const int32_t>(s.batch.targets).subspan(r * length, length);
    const auto count = std::count_if(targets.begin(), targets.end(), [](int32_t target) { return target >= 0; });
    Json row = Json::object(), list = Json::array();
    row["sample"] = s.first_sample + static_cast<int64_t>(r);
    row["targets"] = static_cast<int64_t>(count);
    row["loss"] = count > 0 ? Json(s.row_losses[r] / static_cast<double>(count)) : Json();
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
