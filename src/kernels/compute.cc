#include "kernels/compute.h"

#include <algorithm>
#include <vector>

#include "kernels/reference.h"

namespace moewe::kernels {
namespace {

constexpr size_t kRowsPerTask = 32;

}  // namespace

struct Compute::Impl {
  ThreadPool* pool;
  Activations activations;
  std::vector<std::vector<float>> rows;  // one decoded weight row a worker
  std::vector<float> hidden;

  float* RowScratch(int worker, size_t cols) {
    std::vector<float>& row = rows[static_cast<size_t>(worker)];
    if (row.size() < cols) row.resize(cols);
    return row.data();
  }
};

Compute::Compute(ThreadPool* pool, Activations activations) : impl_(std::make_unique<Impl>()) {
  impl_->pool = pool;
  impl_->activations = activations;
  impl_->rows.resize(static_cast<size_t>(pool->num_threads()));
}

Compute::~Compute() = default;

ThreadPool& Compute::pool() const { return *impl_->pool; }
Activations Compute::activations() const { return impl_->activations; }

void Compute::Project(std::span<const Projection> projections, const float* x, size_t n,
                      size_t x_stride) {
  for (const Projection& p : projections) {
    const size_t tasks = (p.w.rows + kRowsPerTask - 1) / kRowsPerTask;
    impl_->pool->Run(tasks, [&](size_t task, int worker) {
      float* weights = impl_->RowScratch(worker, p.w.cols);
      const size_t end = std::min<size_t>(p.w.rows, (task + 1) * kRowsPerTask);
      for (size_t row = task * kRowsPerTask; row < end; ++row) {
        reference::DecodeRow(p.w, static_cast<uint32_t>(row), weights);
        const float bias = p.bias == nullptr ? 0.0f : p.bias[row];
        for (size_t t = 0; t < n; ++t) {
          const double dot = reference::Dot(weights, x + t * x_stride, p.w.cols);
          p.y[t * p.y_stride + row] = static_cast<float>(dot) + bias;
        }
      }
    });
  }
}

void Compute::Ffn(const FfnMatrices& ffn, GateFunction gate, const float* x, size_t n, float* y) {
  const size_t width = ffn.gate.rows;
  std::vector<float>& hidden = impl_->hidden;
  if (hidden.size() < 2 * n * width) hidden.resize(2 * n * width);
  float* g = hidden.data();
  float* u = g + n * width;
  const Projection in[] = {{ffn.gate, nullptr, g, width}, {ffn.up, nullptr, u, width}};
  Project(in, x, n, ffn.gate.cols);
  for (size_t i = 0; i < n * width; ++i) g[i] = reference::Activate(gate, g[i]) * u[i];
  const Projection out[] = {{ffn.down, nullptr, y, ffn.down.rows}};
  Project(out, g, n, width);
}

void Compute::RoutedFfn(std::span<const ExpertWork> work, GateFunction gate, const float* x,
                        size_t hidden, float* y) {
  for (const ExpertWork& expert : work) {
    for (size_t i = 0; i < expert.token_rows.size(); ++i) {
      Ffn(expert.ffn, gate, x + expert.token_rows[i] * hidden, 1, y + expert.out_rows[i] * hidden);
    }
  }
}

void Compute::DecodeRow(const Matrix& matrix, uint64_t row, float* out) {
  reference::DecodeRow(matrix, static_cast<uint32_t>(row), out);
}

const char* KernelIsaName() { return "scalar"; }

}  // namespace moewe::kernels
