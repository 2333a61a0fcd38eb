#include "convert/skill_subspace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/skill_router.h"
#include "moewe/error.h"

namespace moewe::convert {
namespace {

using Vector = std::vector<double>;

using Window = std::span<const model::TokenId>;

std::vector<Window> Cut(std::span<const std::vector<model::TokenId>> texts,
                        const SubspaceOptions& options) {
  std::vector<Window> all;
  for (const std::vector<model::TokenId>& text : texts) {
    for (size_t begin = 0; begin < text.size(); begin += options.window) {
      const size_t size = std::min(options.window, text.size() - begin);
      if (begin == 0 || size * 2 >= options.window)
        all.push_back(Window(text).subspan(begin, size));
    }
  }
  if (all.size() <= options.max_windows) return all;
  std::vector<Window> some;
  for (size_t i = 0; i < options.max_windows; ++i) {
    some.push_back(all[i * all.size() / options.max_windows]);
  }
  return some;
}

double Dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Unit length, largest component positive.
void Normalize(Vector* vector) {
  const auto largest = std::max_element(
      vector->begin(), vector->end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  const double scale = std::copysign(1.0 / std::sqrt(Dot(*vector, *vector)), *largest);
  for (double& value : *vector) value *= scale;
}

std::vector<Vector> Phis(std::shared_ptr<const formats::Checkpoint> checkpoint,
                         const std::vector<Window>& windows, const SubspaceOptions& options,
                         ThreadPool* pool) {
  model::ResidualReader reader(std::move(checkpoint), {options.phi_layer}, {}, pool);
  std::vector<Vector> phis;
  for (const Window& window : windows) {
    if (options.cancel != nullptr && *options.cancel) {
      throw Error(ErrorCode::kInterrupted, "stopped");
    }
    phis.push_back(reader.Means(window, static_cast<uint32_t>(options.window)).front());
  }
  return phis;
}

}  // namespace

Eigen SymmetricEigen(std::vector<Vector> matrix) {
  const size_t n = matrix.size();
  std::vector<Vector> vectors(n, Vector(n, 0.0));
  for (size_t i = 0; i < n; ++i) vectors[i][i] = 1.0;
  double diagonal = 0.0;
  for (size_t i = 0; i < n; ++i) diagonal += matrix[i][i] * matrix[i][i];
  constexpr int kMostSweeps = 50;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0.0;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) off += matrix[p][q] * matrix[p][q];
    }
    if (off <= 1e-28 * diagonal) break;
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        if (matrix[p][q] == 0.0) continue;
        const double theta = (matrix[q][q] - matrix[p][p]) / (2.0 * matrix[p][q]);
        const double t =
            std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(theta * theta + 1.0));
        const double c = 1.0 / std::sqrt(t * t + 1.0);
        const double s = t * c;
        for (size_t k = 0; k < n; ++k) {
          const double kp = matrix[k][p];
          const double kq = matrix[k][q];
          matrix[k][p] = c * kp - s * kq;
          matrix[k][q] = s * kp + c * kq;
        }
        for (size_t k = 0; k < n; ++k) {
          const double pk = matrix[p][k];
          const double qk = matrix[q][k];
          matrix[p][k] = c * pk - s * qk;
          matrix[q][k] = s * pk + c * qk;
          const double vp = vectors[p][k];
          const double vq = vectors[q][k];
          vectors[p][k] = c * vp - s * vq;
          vectors[q][k] = s * vp + c * vq;
        }
      }
    }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return matrix[a][a] > matrix[b][b]; });
  Eigen eigen;
  for (const size_t i : order) {
    eigen.values.push_back(matrix[i][i]);
    eigen.vectors.push_back(std::move(vectors[i]));
  }
  return eigen;
}

formats::cmf::SkillSelection FitSubspace(std::shared_ptr<const formats::Checkpoint> checkpoint,
                                         std::span<const std::vector<model::TokenId>> texts,
                                         const SubspaceOptions& options, ThreadPool* pool) {
  const std::vector<Window> windows = Cut(texts, options);
  const size_t n = windows.size();
  const auto too_few = [&] {
    return Error(ErrorCode::kUsage,
                 fmt::format("the texts make {} windows of {} tokens; the subspace takes at least "
                             "two that differ",
                             n, options.window));
  };
  if (n < 2) throw too_few();
  std::vector<Vector> phis = Phis(std::move(checkpoint), windows, options, pool);
  const size_t hidden = phis.front().size();
  Vector mean(hidden, 0.0);
  for (const Vector& phi : phis) {
    for (size_t i = 0; i < hidden; ++i) mean[i] += phi[i] / static_cast<double>(n);
  }
  for (Vector& phi : phis) {
    for (size_t i = 0; i < hidden; ++i) phi[i] -= mean[i];
  }
  // The directions of most variance from the windows' scalar products: n is small, hidden may not
  // be.
  std::vector<Vector> gram(n, Vector(n));
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b <= a; ++b) gram[a][b] = gram[b][a] = Dot(phis[a], phis[b]);
  }
  const Eigen eigen = SymmetricEigen(std::move(gram));
  formats::cmf::SkillSelection selection;
  selection.phi_layer = options.phi_layer;
  selection.mean.assign(mean.begin(), mean.end());
  for (size_t i = 0; i < n && selection.rank < options.rank; ++i) {
    // What is left is the noise of the arithmetic.
    const double noise = 1e-10 * static_cast<double>(n) * Dot(mean, mean);
    if (!(eigen.values[i] > std::max(noise, 1e-9 * eigen.values[0]))) break;
    Vector direction(hidden, 0.0);
    for (size_t window = 0; window < n; ++window) {
      for (size_t k = 0; k < hidden; ++k) {
        direction[k] += eigen.vectors[i][window] * phis[window][k];
      }
    }
    Normalize(&direction);
    selection.basis.insert(selection.basis.end(), direction.begin(), direction.end());
    ++selection.rank;
  }
  if (selection.rank == 0) throw too_few();
  return selection;
}

}  // namespace moewe::convert
