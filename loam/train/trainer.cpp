#include "loam/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "loam/autograd/tape.h"
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

// Rows [begin, begin + rows) of a batch as tensors.
struct BatchTensors {
  Tensor tokens, targets, positions, first_key;  // [B,T] i32
  int64_t target_count = 0;

  BatchTensors(const ExecContext& ctx, const TokenBatch& batch, int64_t begin, int64_t rows, bool documents) {
    const auto part = [&](const std::vector<int32_t>& values) {
      return std::span<const int32_t>(values).subspan(static_cast<size_t>(begin * batch.length),
                                                      static_cast<size_t>(rows * batch.length));
    };
    const Shape shape{rows, batch.length};
    tokens = Tensor::from(*ctx.arena, shape, part(batch.tokens));
    targets = Tensor::from(*ctx.arena, shape, part(batch.targets));
    positions = Tensor::from(*ctx.arena, shape, part(batch.positions));
    if (documents) first_key = Tensor::from(*ctx.arena, shape, part(batch.first_key));
    for (const int32_t target : part(batch.targets)) target_count += target >= 0;
  }
};

double sum_of(std::span<const float> losses) {
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

}  // namespace

TrainConfig config_for_data(TrainConfig config, const TokenSetInfo& data) {
  if (config.model.vocab_size == 0) config.model.vocab_size = (data.vocab_size + 63) / 64 * 64;
  return derive(config);
}

Trainer::State::State(const ExecContext& context, TrainConfig c, TrainingData sets)
    : ctx(context), config(std::move(c)), data(std::move(sets)), spikes(config.spikes) {
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

// The sum of the losses of a step's targets; leaves the gradients in the parameters, and the losses by row. nullopt if
// `stop` gave it up. `details` may be null.
std::optional<double> forward_and_backward(Trainer::State& s, int64_t targets, const StopFunction& stop,
                                           StepDetails* details) {
  const TrainConfig& config = s.config;
  double total = 0;
  s.row_losses.assign(static_cast<size_t>(config.batch), 0);
  for (int64_t row = 0; row < config.batch; row += config.micro_batch) {
    const BatchTensors batch(s.ctx, s.batch, row, config.micro_batch, config.data.mask_documents);
    if (batch.target_count == 0) continue;  // its gradient is 0
    s.step_state.first_sample = s.first_sample + row;
    Tape tape;
    if (stop) {
      tape.before_node([&] {
        if (stop(row, config.batch)) throw GivenUp{};
      });
    }
    try {
      const Context ctx(s.ctx, &tape);
      FullSequence sequence(batch.positions, batch.first_key);
      const Transformer& model = *s.model.transformer;
      // The hidden states are not held: nothing of backward needs them.
      const ops::CrossEntropy loss = ops::cross_entropy(
          ctx,
          details ? details->hidden(ctx, model, batch.tokens, sequence) : model.hidden(ctx, batch.tokens, sequence),
          model.head(), batch.targets, 1.0f / static_cast<float>(targets), static_cast<float>(config.z_loss));
      const std::span<const float> losses = loss.losses.span<float>();
      const auto length = static_cast<size_t>(config.data.length);
      for (size_t r = 0; r < static_cast<size_t>(config.micro_batch); ++r) {
        const double sum = sum_of(losses.subspan(r * length, length));
        s.row_losses[static_cast<size_t>(row) + r] = sum;
        total += sum;
      }
      tape.backward(ctx, loss.loss);
    } catch (const GivenUp&) {
      return std::nullopt;
    }
  }
  return total;
}

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

void Trainer::State::run_step(StepResult& result, const StopFunction& stop) {
  ParamStore& weights = *model.weights;
  std::optional<StepDetails> details;
  if (config.detail_every > 0 && result.step % config.detail_every == 0)
    details.emplace(ctx, weights, [this](int32_t index) { return master(index); });

  weights.clear_gradients();
  const std::optional<double> total = forward_and_backward(*this, result.targets, stop, details ? &*details : nullptr);
  result.abandoned = !total;
  if (!total) return;
  weights.finish_gradients(ctx);

  result.loss = readable(*total / static_cast<double>(result.targets));
  optimizer->prepare_step(step_state, result.learning_rate, updates);
  result.grad_norm = readable(clip_gradients(ctx, optimizer->groups(), config.optimizer.clip_norm, step_state));
  if (config.spikes.action != SpikeAction::off) result.spike = spikes.judge(*result.loss, *result.grad_norm);
  const SpikeAction action = result.spike ? config.spikes.action : SpikeAction::off;
  // Where the loss is not finite the gradients are worth nothing, even where they are numbers.
  result.abandoned = action == SpikeAction::rewind || (action != SpikeAction::skip && !std::isfinite(*result.loss));
  if (result.abandoned) return;
  if (action == SpikeAction::skip) step_state.skip = 1;
  if (details) details->before_update();
  optimizer->step(ctx);
  weights.mark_changed();
  if (details) result.layers = details->after_update();
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
    const BatchTensors batch(s.ctx, rows_at_once, 0, count, s.config.data.mask_documents);
    if (batch.target_count == 0) continue;
    FullSequence sequence(batch.positions, batch.first_key);
    const Var hidden = s.model.transformer->hidden(ctx, batch.tokens, sequence);
    const Tensor losses = ops::cross_entropy(ctx, hidden, s.model.transformer->head(), batch.targets, 1).losses;
    total += sum_of(losses.span<float>());
    result.targets += batch.target_count;
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
