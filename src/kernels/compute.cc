#include "kernels/compute.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/activation_rows.h"
#include "kernels/aligned_buffer.h"
#include "kernels/float_product.h"
#include "kernels/product.h"
#include "kernels/vector_ops.h"

namespace moewe::kernels {
namespace {

// Work is handed out in chunks of rows: a multiple of the groups in which the next product's
// activations are quantized, large enough that handing out costs nothing, small enough that all
// threads end together.
constexpr uint32_t kChunkRows = kInt8Group;
constexpr uint32_t kMaxChunkRows = 256;
constexpr size_t kChunkBytes = 64 * 1024;

uint32_t RowsPerChunk(size_t row_bytes) {
  const size_t rows = kChunkBytes / std::max<size_t>(row_bytes, 1) / kChunkRows * kChunkRows;
  return static_cast<uint32_t>(std::clamp<size_t>(rows, kChunkRows, kMaxChunkRows));
}

size_t RowBytes(const Matrix& m) { return m.bytes.size() / std::max<uint32_t>(m.rows, 1); }

// Rows [begin, end) of a job of a region.
struct Chunk {
  size_t job = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool empty() const { return begin == end; }
};

// A matrix and the n entries of Impl::inputs and Impl::outputs, from `first` on, that go through
// it.
struct Product {
  Matrix w;
  Input input;
  const float* bias;
  size_t first;
  size_t n;
  std::span<const uint32_t> rows;  // that are computed; empty = all
};

// One FFN's part of the region that computes activation(gate x) * (up x).
struct GateUp {
  Matrix gate, up;
  const float *gate_bias, *up_bias;
  Input gate_input, up_input;
  size_t gate_first, up_first;  // entries of Impl::inputs
  size_t n;
  std::span<const uint32_t> live;  // neurons; empty = all
  size_t hidden_offset;            // of its rows in the hidden buffer
  Input hidden_input;              // the form in which `down` wants them
  const uint8_t* hidden_col_field;
  size_t hidden_row_bytes;
  uint8_t* hidden;
};

// Chunks that a worker takes in order, and others when they are done with their own.
struct alignas(kCacheLine) ChunkRange {
  std::atomic<size_t> next;
  size_t end;
};

// One FFN of a call: rows of x and y that it takes, null = all in order.
struct FfnShare {
  const FfnMatrices* ffn;
  size_t n;
  const uint32_t* token_rows;
  const uint32_t* out_rows;
};

// Calls run(first, last) for the stretches of adjacent rows in [begin, end) that `rows` lists; for
// all of them if it lists none.
template <typename Run>
void ForRuns(std::span<const uint32_t> rows, uint32_t begin, uint32_t end, const Run& run) {
  if (rows.empty()) {
    run(begin, end);
    return;
  }
  auto next = std::lower_bound(rows.begin(), rows.end(), begin);
  while (next != rows.end() && *next < end) {
    const uint32_t first = *next;
    uint32_t last = first;
    while (next != rows.end() && *next == last && last < end) {
      ++next;
      ++last;
    }
    run(first, last);
  }
}

// Adds bias[first, last) to each of n rows that begin with output `first`.
void AddBias(const float* bias, uint32_t first, uint32_t last, size_t n, float* const* y) {
  if (bias == nullptr) return;
  for (size_t i = 0; i < n; ++i) {
    for (uint32_t row = first; row < last; ++row) y[i][row - first] += bias[row];
  }
}

}  // namespace

struct Compute::Impl {
  ThreadPool* pool;
  Activations activations;
  ActivationRows rows;
  std::vector<Product> products;
  std::vector<GateUp> gate_ups;
  std::vector<FfnShare> shares;
  std::vector<const uint8_t*> inputs;
  std::vector<float*> outputs;
  std::vector<size_t> chunk_end;  // of each job of a region, cumulative
  std::vector<uint32_t> chunk_rows;
  std::vector<ChunkRange> ranges;             // one a worker
  std::vector<AlignedBuffer<float>> scratch;  // one a worker
  AlignedBuffer<uint8_t> hidden;

  void NeedScratch(size_t floats) {
    for (AlignedBuffer<float>& buffer : scratch) buffer.Need(floats);
  }
  float* Scratch(int worker) { return scratch[static_cast<size_t>(worker)].data(); }

  // Runs task(chunk, next, worker) over chunks of the rows of all jobs, which were announced by
  // AddChunks in order; `next` is the one that the worker most likely takes afterwards, or empty.
  // Workers go through memory in one direction, each through a part of its own as far as they keep
  // pace: that is what prefetching, by hardware or by kernels, can follow.
  void AddChunks(uint32_t rows_of_job, size_t row_bytes) {
    const uint32_t per_chunk = RowsPerChunk(row_bytes);
    chunk_rows.push_back(per_chunk);
    const size_t before = chunk_end.empty() ? 0 : chunk_end.back();
    chunk_end.push_back(before + (rows_of_job + per_chunk - 1) / per_chunk);
  }
  template <typename RowsOf, typename Task>
  void RunChunks(const RowsOf& rows_of, const Task& task) {
    if (chunk_end.empty()) return;
    const auto chunk_at = [&](size_t index) {
      const auto job = static_cast<size_t>(
          std::upper_bound(chunk_end.begin(), chunk_end.end(), index) - chunk_end.begin());
      const size_t first = job == 0 ? 0 : chunk_end[job - 1];
      const auto begin = static_cast<uint32_t>((index - first) * chunk_rows[job]);
      return Chunk{job, begin, std::min(rows_of(job), begin + chunk_rows[job])};
    };
    const size_t count = chunk_end.back();
    const size_t parts = std::min(count, ranges.size());
    for (size_t i = 0; i < parts; ++i) {
      ranges[i].next.store(count * i / parts, std::memory_order_relaxed);
      ranges[i].end = count * (i + 1) / parts;
    }
    pool->Run(parts, [&](size_t part, int worker) {
      for (size_t i = 0; i < parts; ++i) {
        ChunkRange& range = ranges[(part + i) % parts];
        for (size_t index = range.next.fetch_add(1, std::memory_order_relaxed); index < range.end;
             index = range.next.fetch_add(1, std::memory_order_relaxed)) {
          const bool last = index + 1 == range.end;
          task(chunk_at(index), last ? Chunk{} : chunk_at(index + 1), worker);
        }
      }
    });
    chunk_end.clear();
    chunk_rows.clear();
  }

  void RunProducts();
  void ProductChunk(const Product& p, const Chunk& chunk, const NextRows& next, int worker);
  void GateUpChunk(const GateUp& job, const Gate& gate, const Chunk& chunk, const NextRows& next,
                   int worker);
  void AddInputs(size_t form, size_t n, const uint32_t* token_rows);
  size_t AddRows(const Matrix& w, Input input, const FfnShare& share, const float* x,
                 size_t x_rows);
  size_t AddGateUps(const float* x, size_t x_rows);
  void RunFfns(const Gate& gate, const float* x, size_t x_rows, float* y);
};

void Compute::Impl::ProductChunk(const Product& p, const Chunk& chunk, const NextRows& next,
                                 int worker) {
  float* y[kTokenBlock];
  for (size_t t = 0; t < p.n; t += kTokenBlock) {
    const size_t count = std::min(kTokenBlock, p.n - t);
    ForRuns(p.rows, chunk.begin, chunk.end, [&](uint32_t first, uint32_t last) {
      for (size_t i = 0; i < count; ++i) y[i] = outputs[p.first + t + i] + first;
      ComputeRows(p.w, p.input, first, last, &inputs[p.first + t], count, y, Scratch(worker), next);
      AddBias(p.bias, first, last, count, y);
    });
  }
}

void Compute::Impl::RunProducts() {
  size_t floats = 0;
  for (const Product& p : products) {
    floats = std::max(floats, ProductScratchFloats(p.w.cols));
    AddChunks(p.w.rows, RowBytes(p.w));
  }
  NeedScratch(floats);
  RunChunks([&](size_t job) { return products[job].w.rows; },
            [&](const Chunk& chunk, const Chunk& next, int worker) {
              NextRows ahead;
              if (!next.empty()) ahead = {&products[next.job].w, next.begin};
              ProductChunk(products[chunk.job], chunk, ahead, worker);
            });
}

// The chunk's columns of the hidden rows, in the form that `down` wants.
void Compute::Impl::GateUpChunk(const GateUp& job, const Gate& gate, const Chunk& chunk,
                                const NextRows& next, int worker) {
  const uint32_t begin = chunk.begin;
  const uint32_t end = chunk.end;
  const size_t width = job.gate.rows;
  const size_t count = end - begin;
  float* g_rows = Scratch(worker);
  float* u_rows = g_rows + kTokenBlock * kMaxChunkRows;
  float* product_scratch = u_rows + kTokenBlock * kMaxChunkRows;
  float* g[kTokenBlock];
  float* u[kTokenBlock];
  for (size_t t = 0; t < job.n; t += kTokenBlock) {
    const size_t n = std::min(kTokenBlock, job.n - t);
    if (!job.live.empty()) std::fill_n(g_rows, 2 * kTokenBlock * kMaxChunkRows, 0.0f);
    ForRuns(job.live, begin, end, [&](uint32_t first, uint32_t last) {
      for (size_t i = 0; i < n; ++i) {
        g[i] = g_rows + i * kMaxChunkRows + (first - begin);
        u[i] = u_rows + i * kMaxChunkRows + (first - begin);
      }
      ComputeRows(job.gate, job.gate_input, first, last, &inputs[job.gate_first + t], n, g,
                  product_scratch, {&job.up, first});
      ComputeRows(job.up, job.up_input, first, last, &inputs[job.up_first + t], n, u,
                  product_scratch, next);
      AddBias(job.gate_bias, first, last, n, g);
      AddBias(job.up_bias, first, last, n, u);
    });
    for (size_t i = 0; i < n; ++i) {
      g[i] = g_rows + i * kMaxChunkRows;
      u[i] = u_rows + i * kMaxChunkRows;
      GateTimesUp(gate, g[i], u[i], count);
      uint8_t* row = job.hidden + (t + i) * job.hidden_row_bytes;
      if (job.hidden_input == Input::kFloat) {
        std::memcpy(row + begin * sizeof(float), g[i], count * sizeof(float));
      } else {
        const uint8_t* field = job.hidden_col_field;
        Int8KernelsFor(ActiveIsa())
            .quantize(g[i], field == nullptr ? nullptr : field + size_t{begin} * 2, count,
                      begin / kInt8Group, width, job.hidden_input, row);
      }
    }
  }
}

void Compute::Impl::AddInputs(size_t form, size_t n, const uint32_t* token_rows) {
  for (size_t i = 0; i < n; ++i) {
    const bool direct = token_rows == nullptr || rows.HasIndices(form);
    inputs.push_back(rows.Row(form, direct ? i : token_rows[i]));
  }
}

// Rows go through many experts: they are prepared once for all, unless a matrix has an input scale
// of its own.
size_t Compute::Impl::AddRows(const Matrix& w, Input input, const FfnShare& share, const float* x,
                              size_t x_rows) {
  const bool own = input != Input::kFloat && ColFieldOf(w) != nullptr;
  return own ? rows.Add(w, input, {x, share.n, w.cols, share.token_rows})
             : rows.Add(w, input, {x, x_rows, w.cols, nullptr});
}

// Fills gate_ups, their inputs and the place of their hidden rows from `shares`.
size_t Compute::Impl::AddGateUps(const float* x, size_t x_rows) {
  gate_ups.clear();
  rows.Clear();
  inputs.clear();
  size_t hidden_bytes = 0;
  size_t cols = 0;
  for (const FfnShare& share : shares) {
    const FfnMatrices& ffn = *share.ffn;
    GateUp job{};
    job.gate = ffn.gate;
    job.up = ffn.up;
    job.gate_bias = ffn.gate_bias;
    job.up_bias = ffn.up_bias;
    job.gate_input = InputOf(ffn.gate, activations);
    job.up_input = InputOf(ffn.up, activations);
    job.gate_first = AddRows(ffn.gate, job.gate_input, share, x, x_rows);  // forms, for now
    job.up_first = AddRows(ffn.up, job.up_input, share, x, x_rows);
    job.n = share.n;
    job.live = ffn.live;
    job.hidden_offset = hidden_bytes;
    job.hidden_input = InputOf(ffn.down, activations);
    job.hidden_col_field = job.hidden_input == Input::kFloat ? nullptr : ColFieldOf(ffn.down);
    job.hidden_row_bytes = job.hidden_input == Input::kFloat
                               ? (size_t{ffn.gate.rows} * sizeof(float) + 63) / 64 * 64
                               : PreparedRow::Bytes(ffn.gate.rows);
    hidden_bytes += share.n * job.hidden_row_bytes;
    cols = std::max({cols, size_t{ffn.gate.cols}, size_t{ffn.down.cols}});
    gate_ups.push_back(job);
  }
  rows.Prepare(pool);
  uint8_t* base = hidden.Need(hidden_bytes);
  for (size_t i = 0; i < gate_ups.size(); ++i) {
    GateUp& job = gate_ups[i];
    const size_t gate_form = job.gate_first;
    const size_t up_form = job.up_first;
    job.gate_first = inputs.size();
    AddInputs(gate_form, job.n, shares[i].token_rows);
    job.up_first = inputs.size();
    if (up_form == gate_form) {
      job.up_first = job.gate_first;
    } else {
      AddInputs(up_form, job.n, shares[i].token_rows);
    }
    job.hidden = base + job.hidden_offset;
  }
  return cols;
}

void Compute::Impl::RunFfns(const Gate& gate, const float* x, size_t x_rows, float* y) {
  const size_t cols = AddGateUps(x, x_rows);
  NeedScratch(2 * kTokenBlock * kMaxChunkRows + ProductScratchFloats(cols));
  for (const GateUp& job : gate_ups) AddChunks(job.gate.rows, 2 * RowBytes(job.gate));
  RunChunks([&](size_t job) { return gate_ups[job].gate.rows; },
            [&](const Chunk& chunk, const Chunk& next, int worker) {
              NextRows ahead;
              if (!next.empty()) ahead = {&gate_ups[next.job].gate, next.begin};
              GateUpChunk(gate_ups[chunk.job], gate, chunk, ahead, worker);
            });

  products.clear();
  inputs.clear();
  outputs.clear();
  for (size_t i = 0; i < shares.size(); ++i) {
    const FfnShare& share = shares[i];
    const GateUp& job = gate_ups[i];
    const Matrix& down = share.ffn->down;
    products.push_back({down, job.hidden_input, share.ffn->down_bias, inputs.size(), share.n, {}});
    for (size_t t = 0; t < share.n; ++t) {
      inputs.push_back(job.hidden + t * job.hidden_row_bytes);
      outputs.push_back(y +
                        (share.out_rows == nullptr ? t : share.out_rows[t]) * size_t{down.rows});
    }
  }
  RunProducts();
}

Compute::Compute(ThreadPool* pool, Activations activations) : impl_(std::make_unique<Impl>()) {
  ActiveIsa();  // its error, if any, belongs here
  impl_->pool = pool;
  impl_->activations = activations;
  impl_->scratch.resize(static_cast<size_t>(pool->num_threads()));
  impl_->ranges = std::vector<ChunkRange>(static_cast<size_t>(pool->num_threads()));
}

Compute::~Compute() = default;

ThreadPool& Compute::pool() const { return *impl_->pool; }
Activations Compute::activations() const { return impl_->activations; }

void Compute::Project(std::span<const Projection> projections, const float* x, size_t n,
                      size_t x_stride) {
  Impl& impl = *impl_;
  impl.rows.Clear();
  impl.products.clear();
  impl.inputs.clear();
  impl.outputs.clear();
  for (const Projection& p : projections) {
    const Input input = InputOf(p.w, impl.activations);
    const size_t form = impl.rows.Add(p.w, input, {x, n, x_stride, nullptr});
    impl.products.push_back({p.w, input, p.bias, form, n, p.rows});
  }
  impl.rows.Prepare(impl.pool);
  for (size_t i = 0; i < projections.size(); ++i) {
    const size_t form = impl.products[i].first;
    impl.products[i].first = impl.inputs.size();
    impl.AddInputs(form, n, nullptr);
    for (size_t t = 0; t < n; ++t) {
      impl.outputs.push_back(projections[i].y + t * projections[i].y_stride);
    }
  }
  impl.RunProducts();
}

void Compute::Ffn(const FfnMatrices& ffn, const Gate& gate, const float* x, size_t n, float* y) {
  impl_->shares.assign(1, {&ffn, n, nullptr, nullptr});
  impl_->RunFfns(gate, x, n, y);
}

void Compute::RoutedFfn(std::span<const ExpertWork> work, const Gate& gate, const float* x,
                        size_t hidden, float* y) {
  (void)hidden;  // the experts' width
  impl_->shares.clear();
  size_t x_rows = 0;
  for (const ExpertWork& expert : work) {
    impl_->shares.push_back(
        {&expert.ffn, expert.token_rows.size(), expert.token_rows.data(), expert.out_rows.data()});
    for (uint32_t row : expert.token_rows) x_rows = std::max<size_t>(x_rows, size_t{row} + 1);
  }
  impl_->RunFfns(gate, x, x_rows, y);
}

void Compute::DecodeRow(const Matrix& matrix, uint64_t row, float* out) {
  const auto first = static_cast<uint32_t>(row);
  DecodeRows(matrix, first, first + 1, out);
}

}  // namespace moewe::kernels
