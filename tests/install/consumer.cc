#include <moewe/error.h>

#include <cstdio>

int main() {
  const moewe::Error error(moewe::ErrorCode::kBounds, "ends too early", {"model.cmf", "data", 12});
  std::puts(error.what());
  return moewe::ExitCode(error.code()) == 3 ? 0 : 1;
}
