#include "loam/kernels/cuda/handles.h"

#include <array>
#include <cstring>
#include <vector>

#include "loam/kernels/cuda/matmul.h"
#include "loam/kernels/kernel_table.h"
#include "loam/tensor/cuda/cuda.h"

namespace loam::cuda {
namespace {

// Pinned host memory of one copy at a time.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { cudaFreeHost(data_); }

  void wait() const {
    if (done_) LOAM_CUDA(cudaEventSynchronize(done_.get()));
  }
  // Waits until the copy that used it last is done.
  void* take(int64_t bytes) {
    wait();
    if (bytes > bytes_) {
      cudaFreeHost(data_);
      data_ = nullptr;
      LOAM_CUDA(cudaMallocHost(&data_, static_cast<size_t>(bytes)));
      bytes_ = bytes;
    }
    return data_;
  }
  const void* data() const { return data_; }
  void used(cudaStream_t stream) {
    if (!done_) done_ = make_event();
    LOAM_CUDA(cudaEventRecord(done_.get(), stream));
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Event done_;
};

using StagingPool = std::vector<std::unique_ptr<Staging>>;

// Gives its memory back to the pool, also while the copy runs: who takes it waits.
class PinnedDownload : public Download {
 public:
  PinnedDownload(std::shared_ptr<StagingPool> pool, std::unique_ptr<Staging> staging)
      : pool_(std::move(pool)), staging_(std::move(staging)) {}
  ~PinnedDownload() override { pool_->push_back(std::move(staging_)); }
  const void* wait() override {
    staging_->wait();
    return staging_->data();
  }

 private:
  std::shared_ptr<StagingPool> pool_;
  std::unique_ptr<Staging> staging_;
};

class GraphRecording : public Recording {
 public:
  GraphRecording(GraphExec graph, cudaStream_t stream) : graph_(std::move(graph)), stream_(stream) {}
  void replay() override { LOAM_CUDA(cudaGraphLaunch(graph_.get(), stream_)); }

 private:
  GraphExec graph_;
  cudaStream_t stream_;
};

}  // namespace

struct Handles::Owned {
  StreamOwner stream;
  std::array<Staging, 16> staging;  // a step uploads a few tensors: those of two steps
  size_t next = 0;
  std::shared_ptr<StagingPool> downloads = std::make_shared<StagingPool>();  // those that nobody holds
  std::vector<Event> marks;                                                  // made once, used again
  size_t marked = 0;
};

Handles::Handles(Device device) : owned_(std::make_unique<Owned>()) {
  LOAM_CUDA(cudaSetDevice(device.index));
  owned_->stream = make_stream();
  matmul_ = std::make_unique<MatmulCache>();
}
Handles::~Handles() = default;

Stream Handles::stream() const { return {owned_->stream.get()}; }

void Handles::synchronize() { LOAM_CUDA(cudaStreamSynchronize(owned_->stream.get())); }

void Handles::upload(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  Staging& staging = owned_->staging[owned_->next++ % owned_->staging.size()];
  void* host = staging.take(bytes);
  std::memcpy(host, from, static_cast<size_t>(bytes));
  LOAM_CUDA(cudaMemcpyAsync(to, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, owned_->stream.get()));
  staging.used(owned_->stream.get());
}

std::unique_ptr<Download> Handles::download(const void* from, int64_t bytes) {
  StagingPool& pool = *owned_->downloads;
  std::unique_ptr<Staging> staging;
  if (pool.empty()) {
    staging = std::make_unique<Staging>();
  } else {
    staging = std::move(pool.back());
    pool.pop_back();
  }
  void* host = staging->take(bytes);
  LOAM_CUDA(cudaMemcpyAsync(host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, owned_->stream.get()));
  staging->used(owned_->stream.get());
  return std::make_unique<PinnedDownload>(owned_->downloads, std::move(staging));
}

std::unique_ptr<Recording> Handles::record(const std::function<void()>& work) {
  const cudaStream_t stream = owned_->stream.get();
  LOAM_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t captured = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream, &captured);
    const Graph discarded(captured);
    throw;
  }
  LOAM_CUDA(cudaStreamEndCapture(stream, &captured));
  const Graph graph(captured);
  cudaGraphExec_t exec = nullptr;
  LOAM_CUDA(cudaGraphInstantiate(&exec, graph.get(), 0));
  return std::make_unique<GraphRecording>(GraphExec(exec), stream);
}

int64_t Handles::mark() {
  std::vector<Event>& marks = owned_->marks;
  if (owned_->marked == marks.size()) marks.push_back(make_event(true));
  LOAM_CUDA(cudaEventRecord(marks[owned_->marked].get(), owned_->stream.get()));
  return static_cast<int64_t>(owned_->marked++);
}

double Handles::seconds_between(int64_t from, int64_t to) {
  const auto event = [&](int64_t mark) { return owned_->marks.at(static_cast<size_t>(mark)).get(); };
  float milliseconds = 0;
  LOAM_CUDA(cudaEventSynchronize(event(to)));
  LOAM_CUDA(cudaEventElapsedTime(&milliseconds, event(from), event(to)));
  return 1e-3 * static_cast<double>(milliseconds);
}

void Handles::clear_marks() { owned_->marked = 0; }

void use(Device device, ExecResources& resources) {
  const auto handles = std::make_shared<Handles>(device);
  resources.context.handles = handles.get();
  resources.context.stream = handles->stream();
  resources.context.kernels = &cuda_kernel_table();
  resources.handles = handles;
}

}  // namespace loam::cuda
