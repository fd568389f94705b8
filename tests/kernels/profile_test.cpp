#include "loam/kernels/profile.h"

#include "loam/kernels/kernel_work.h"
#include "loam/kernels/memory_profile.h"
#include "tests/kernels/kernel_testing.h"

namespace loam {
namespace {

// A device whose work takes as long as the test says.
class FakeDevice : public DeviceHandles {
 public:
  double now = 0;
  void synchronize() override {}
  void upload(void*, const void*, int64_t) override {}
  std::unique_ptr<Download> download(const void*, int64_t) override { return nullptr; }
  std::unique_ptr<Recording> record(const std::function<void()>&) override { return nullptr; }
  int64_t mark() override {
    marks_.push_back(now);
    return static_cast<int64_t>(marks_.size()) - 1;
  }
  double seconds_between(int64_t from, int64_t to) override {
    return marks_.at(static_cast<size_t>(to)) - marks_.at(static_cast<size_t>(from));
  }
  void clear_marks() override { marks_.clear(); }

 private:
  std::vector<double> marks_;
};

View view_of(const Shape& shape, DType dtype = DType::f32) {
  static float memory[1];
  return {memory, dtype, {}, shape, contiguous_strides(shape)};
}

// The mask's definition (loam/kernels/attention.h), pair by pair.
double pairs_of(const AttentionMask& mask, int64_t T, int64_t S) {
  double pairs = 0;
  for (int64_t i = 0; i < T; ++i) {
    for (int64_t j = 0; j < S; ++j) {
      const int64_t p = i + S - T;
      pairs += (!mask.causal || j <= p) && (mask.window == 0 || j > p - mask.window);
    }
  }
  return pairs;
}

TEST(KernelWork, PairsAreThoseOfTheMask) {
  for (const bool causal : {false, true}) {
    for (const int64_t window : {0, 1, 5, 100}) {
      for (const auto& [T, S] : {std::pair<int64_t, int64_t>{16, 16}, {1, 33}, {7, 20}}) {
        AttentionMask mask;
        mask.causal = causal;
        mask.window = window;
        EXPECT_EQ(visible_pairs(mask, T, S), pairs_of(mask, T, S)) << causal << window << T << S;
      }
    }
  }
}

TEST(KernelWork, CountsProductsAndTraffic) {
  MatmulArgs product;  // c += a^T b: [3,5] of [7,3] and [7,5]
  product.a = view_of({7, 3}, DType::bf16);
  product.transpose_a = true;
  product.b = view_of({7, 5}, DType::bf16);
  product.c = view_of({3, 5});
  product.accumulate = true;
  const KernelWork work = kernel_work(product);
  EXPECT_EQ(work.shape, "3 x 5 x 7 TN to f32 +");
  EXPECT_EQ(work.dtype, DType::bf16);
  EXPECT_EQ(work.flops, 2 * 3 * 5 * 7);
  EXPECT_EQ(work.bytes, 2 * (7 * 3 + 7 * 5) + 2 * 4 * 3 * 5);

  AttentionFwdArgs attention;
  attention.q = attention.out = view_of({2, 8, 6, 16});
  attention.k = attention.v = view_of({2, 8, 3, 16});
  EXPECT_EQ(kernel_work(attention).shape, "B2 T8 H6 K3 D16 causal");
  EXPECT_EQ(kernel_work(attention).flops, 2 * 2 * (2 * 6 * 16) * (8 * 9 / 2));  // two products of half of T x T
  AttentionBwdArgs backward;
  backward.q = view_of({2, 8, 6, 16});
  backward.k = view_of({2, 8, 3, 16});
  EXPECT_EQ(kernel_work(backward).flops, 2.5 * kernel_work(attention).flops);

  EmbeddingFwdArgs embedding;
  embedding.ids = view_of({4}, DType::i32);
  embedding.table = view_of({1000, 8});
  embedding.out = view_of({4, 8});
  EXPECT_EQ(kernel_work(embedding).shape, "4 of 1000 x 8");
  EXPECT_EQ(kernel_work(embedding).dtype, DType::f32);
  EXPECT_EQ(kernel_work(embedding).bytes, 4 * 4 + 2 * 4 * 8 * 4);

  AddArgs add{view_of({3, 4}), view_of({3, 4}), view_of({3, 4})};
  EXPECT_EQ(kernel_work(add).shape, "3 x 4");
  EXPECT_EQ(kernel_work(add).flops, 0);
  EXPECT_EQ(kernel_work(add).bytes, 3 * 12 * 4);
  EXPECT_EQ(kernel_work(CopyArgs{view_of({3, 4}), view_of({3, 4}, DType::bf16)}).shape, "3 x 4 to bf16");
  EXPECT_EQ(kernel_work(ClipArgs{}).shape, "");
}

TEST(KernelProfile, RooflineIsTheSlowerOfArithmeticAndMemory) {
  const DevicePeaks peaks{.f32_flops = 100, .bf16_flops = 1000, .bytes = 10};
  KernelTime kernel;
  kernel.seconds = 4;
  kernel.flops = 200;
  kernel.bytes = 10;
  EXPECT_DOUBLE_EQ(roofline_share(kernel, peaks), 2.0 / 4);  // 2 s of f32 against 1 s of memory
  kernel.dtype = DType::bf16;
  EXPECT_DOUBLE_EQ(roofline_share(kernel, peaks), 1.0 / 4);
  EXPECT_EQ(roofline_share(KernelTime(), peaks), 0);
}

TEST(KernelProfile, DeviceTimesAreThoseBetweenItsMarks) {
  FakeDevice device;
  KernelProfile profile(&device);
  const KernelWork small{"2", DType::f32, 10, 100}, large{"3", DType::f32, 30, 300};
  const auto call = [&](const char* name, const KernelWork& work, double seconds) {
    profile.begin_call(name, work);
    device.now += seconds;
    profile.end_call();
    device.now += 0.25;  // between kernels
  };
  call("add", small, 100);  // of warming up
  profile.settle();
  profile.clear();
  for (const double seconds : {1.0, 2.0}) {
    profile.phase("forward");
    call("add", small, seconds);
    call("add", large, 10 * seconds);
    profile.phase("backward");
    call("add", small, 0.5);
    profile.phase(nullptr);
    profile.settle();
  }
  const std::vector<KernelTime> times = profile.times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].shape, "3");
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_NEAR(times[0].seconds, 30, 1e-9);
  EXPECT_EQ(times[0].flops, 60);
  EXPECT_EQ(times[1].calls, 4);
  EXPECT_NEAR(times[1].seconds, 4, 1e-9);
  EXPECT_EQ(times[1].bytes, 400);
  EXPECT_NEAR(profile.total_seconds(), 34, 1e-9);
  ASSERT_EQ(profile.phases().size(), 4u);
  const auto seconds_of = [&](size_t i) {
    const KernelProfile::Phase& phase = profile.phases()[i];
    return profile.seconds_at(phase.end) - profile.seconds_at(phase.begin);
  };
  EXPECT_NEAR(seconds_of(0), 11.5, 1e-9);
  EXPECT_NEAR(seconds_of(1), 0.75, 1e-9);
  EXPECT_NEAR(seconds_of(2), 22.5, 1e-9);
  EXPECT_STREQ(profile.phases()[3].name, "backward");
}

TEST(KernelProfile, CountsOuterCallsUnderTheirModule) {
  const ExecResources r = make_exec_resources({}, 1);
  ExecContext ctx = r.context;
  KernelProfile profile;
  ctx.profile = &profile;
  const Tensor x = ctx.empty({4, 6}, DType::f32);
  ctx.kernels->fill(ctx, {x, 1.0f});
  profile.enter("layers.3");
  const int32_t layer = profile.module();
  profile.enter("mlp");
  ctx.kernels->orthogonalize(ctx, {x, 2});  // which multiplies matrices
  profile.set_module(layer);
  EXPECT_THROW(KernelTable().rope(ctx, {}), Error);
  profile.settle();
  ASSERT_EQ(profile.calls().size(), 2u);
  EXPECT_EQ(profile.name(profile.calls()[1]), "orthogonalize");
  EXPECT_EQ(profile.work(profile.calls()[1]).flops, 2 * (4 * 4 * 4 * 6 + 2 * 4 * 4 * 4));
  EXPECT_EQ(profile.module_name(profile.calls()[0].module), "");
  EXPECT_EQ(profile.module_name(profile.calls()[1].module), "layers.3.mlp");
  EXPECT_EQ(profile.module_name(layer), "layers.3");
  EXPECT_GT(profile.total_seconds(), 0);
  EXPECT_LE(profile.seconds_at(profile.calls()[0].end), profile.seconds_at(profile.calls()[1].begin));
}

TEST(MemoryProfile, KnowsWhatIsThereAtThePeakAndWhoMadeIt) {
  const ExecResources r = make_exec_resources({}, 1);
  ExecContext ctx = r.context;
  const Tensor before = ctx.empty({1000}, DType::f32);
  KernelProfile profile;
  MemoryProfile memory(*ctx.arena, profile);
  ctx.profile = &profile;
  const Tensor kept = ctx.empty({64}, DType::f32, MemoryKind::weights);
  ctx.kernels->fill(ctx, {kept, 1.0f});
  { const Tensor gone = ctx.empty({1 << 20}, DType::f32); }  // before what counts
  memory.clear();
  {
    const Tensor large = ctx.empty({4, 256}, DType::f32, MemoryKind::workspace);
    const Tensor small = ctx.empty({32}, DType::bf16);
    profile.enter("head");
    ctx.kernels->fill(ctx, {large, 2.0f});
  }
  const Tensor later = ctx.empty({512}, DType::f32);
  const MemoryProfile::Peak peak = memory.peak();
  EXPECT_EQ(peak.bytes, 256 + 4096 + 64);
  ASSERT_EQ(peak.blocks.size(), 3u);
  const MemoryProfile::Block& largest = memory.block(peak.blocks[0]);
  EXPECT_EQ(largest.shape, Shape({4, 256}));
  EXPECT_EQ(largest.kind, MemoryKind::workspace);
  EXPECT_EQ(profile.name(profile.call(largest.call)), "fill");
  EXPECT_EQ(memory.block(peak.blocks[1]).kind, MemoryKind::weights);
  EXPECT_EQ(memory.block(peak.blocks[2]).dtype, DType::bf16);
}

}  // namespace
}  // namespace loam
