#include "loam/train/trainer.h"

#include <cmath>
#include <optional>
#include <span>

#include "loam/autograd/tape.h"
#include "loam/nn/sequence.h"
#include "loam/ops/linear_log_prob.h"
#include "loam/optim/schedule.h"
#include "loam/train/trainer_state.h"

namespace loam {
namespace {

LoaderOptions loader_options(const TrainConfig& config) {
  return {config.data.length, config.data.mask_documents, config.data.shuffle, static_cast<uint64_t>(config.seed)};
}

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

double sum_of(const Tensor& losses) {
  double sum = 0;
  for (const float loss : losses.span<float>()) sum += static_cast<double>(loss);
  return sum;
}

void check_vocabulary(const TrainConfig& config, const TokenSet& set, const char* name) {
  LOAM_CHECK(set.info().vocab_size <= config.model.vocab_size,
             "the {} data have token ids up to {}, but model.vocab_size is {}", name, set.info().vocab_size - 1,
             config.model.vocab_size);
}

Loader checked_loader(const TrainConfig& config, const std::shared_ptr<const TokenSet>& train, const TokenSet* val) {
  check_vocabulary(config, *train, "training");
  if (val) check_vocabulary(config, *val, "validation");
  return Loader(train, loader_options(config));
}

}  // namespace

TrainConfig config_for_data(TrainConfig config, const TokenSetInfo& data) {
  if (config.model.vocab_size == 0) config.model.vocab_size = (data.vocab_size + 63) / 64 * 64;
  return derive(config);
}

Trainer::State::State(const ExecContext& context, TrainConfig c, std::shared_ptr<const TokenSet> train_set,
                      std::shared_ptr<const TokenSet> val_set)
    : ctx(context),
      config(std::move(c)),
      train(std::move(train_set)),
      val(std::move(val_set)),
      loader(checked_loader(config, train, val.get())) {
  ctx.step = &step_state;
  ctx.seed = static_cast<uint64_t>(config.seed);
  ctx.numerics = numerics_of(config.numerics);
  model = make_model(ctx, config.model, dtype_of(config.dtype), true);
  model.weights->initialize(ctx.seed);
  model.tokenizer = train->info().tokenizer_fingerprint;
  if (const int32_t end = train->info().end_of_text; end >= 0) {
    model.bos_id = end;
    model.eos_ids = {end};
  }
  OptimizerGroups groups = optimizer_groups(*model.weights, config.optimizer);
  places = std::move(groups.places);
  optimizer = std::make_unique<Optimizer>(ctx, std::move(groups.groups), config.optimizer);
}

Trainer::Trainer(const ExecContext& ctx, TrainConfig config, std::shared_ptr<const TokenSet> train,
                 std::shared_ptr<const TokenSet> val)
    : state_(std::make_unique<State>(ctx, std::move(config), std::move(train), std::move(val))) {}

Trainer::~Trainer() = default;

void Trainer::check_data(const TrainConfig& config, const std::shared_ptr<const TokenSet>& train,
                         const std::shared_ptr<const TokenSet>& val) {
  checked_loader(config, train, val.get());
}

int64_t Trainer::steps_done() const { return state_->steps_done; }
Model& Trainer::model() { return state_->model; }
const TrainConfig& Trainer::config() const { return state_->config; }

namespace {

// Ends a step from within, past the ops and the tape.
struct GivenUp {};

// The sum of the losses of a step's targets; leaves the gradients in the parameters. nullopt if `stop` gave it up.
std::optional<double> forward_and_backward(Trainer::State& s, int64_t targets, const StopFunction& stop) {
  const TrainConfig& config = s.config;
  double total = 0;
  for (int64_t row = 0; row < config.batch; row += config.micro_batch) {
    const BatchTensors batch(s.ctx, s.batch, row, config.micro_batch, config.data.mask_documents);
    if (batch.target_count == 0) continue;  // its gradient is 0
    Tape tape;
    if (stop) {
      tape.before_node([&] {
        if (stop(row, config.batch)) throw GivenUp{};
      });
    }
    try {
      const Context ctx(s.ctx, &tape);
      FullSequence sequence(batch.positions, batch.first_key);
      // The hidden states are not held: nothing of backward needs them.
      const ops::CrossEntropy loss =
          ops::cross_entropy(ctx, s.model.transformer->hidden(ctx, batch.tokens, sequence),
                             s.model.transformer->head_weight(), batch.targets, 1.0f / static_cast<float>(targets));
      total += sum_of(loss.losses);
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
  ParamStore& weights = *s.model.weights;
  s.loader.fill(config.overfit_one_batch ? 0 : s.steps_done * config.batch, config.batch, s.batch);

  StepResult result;
  result.targets = s.batch.target_count();
  result.learning_rate = learning_rate(config.optimizer, s.steps_done, config.steps);
  result.step = s.steps_done + 1;
  if (result.targets == 0) {
    s.steps_done = result.step;
    result.skipped = true;
    return result;
  }

  weights.clear_gradients();
  const std::optional<double> total = forward_and_backward(s, result.targets, stop);
  if (!total) {
    result.step = s.steps_done;
    result.abandoned = true;
    return result;
  }
  weights.finish_gradients(s.ctx);

  result.loss = *total / static_cast<double>(result.targets);
  s.optimizer->prepare_step(s.step_state, result.learning_rate, s.updates);
  result.grad_norm = clip_gradients(s.ctx, s.optimizer->groups(), config.optimizer.clip_norm, s.step_state);
  if (!std::isfinite(*result.loss)) {  // the gradients are worth nothing, even where they are numbers
    result.step = s.steps_done;
    result.abandoned = true;
    return result;
  }
  s.optimizer->step(s.ctx);
  weights.mark_changed();
  s.steps_done = result.step;
  result.skipped = s.step_state.skip != 0;
  if (!result.skipped) ++s.updates;
  return result;
}

std::optional<ValResult> Trainer::validate(const StopFunction& stop) {
  State& s = *state_;
  if (!s.val || s.val->tokens() < 2) return std::nullopt;
  LoaderOptions options = loader_options(s.config);
  options.shuffle = false;
  options.length = std::min(options.length, s.val->tokens() - 1);  // a set shorter than a row is one row
  const Loader loader(s.val, options);
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
    total += sum_of(ops::cross_entropy(ctx, hidden, s.model.transformer->head_weight(), batch.targets, 1).losses);
    result.targets += batch.target_count;
  }
  if (result.targets == 0) return std::nullopt;
  result.loss = total / static_cast<double>(result.targets);
  const TokenSetInfo& info = s.val->info();
  if (info.text_bytes > 0) {
    result.bits_per_byte =
        result.loss / M_LN2 * static_cast<double>(info.tokens) / static_cast<double>(info.text_bytes);
  }
  return result;
}

}  // namespace loam
