#!/usr/bin/env bash
# Builds the layers up to kernels for 64-bit Arm (NEON) and runs their tests under qemu. Installs Debian's cross
# compiler and libraries first.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(g++-aarch64-linux-gnu qemu-user libhwy-dev:arm64 libfmt-dev:arm64 libgtest-dev:arm64 libgmock-dev:arm64)
if ! dpkg-query -W "${packages[@]}" > /dev/null 2>&1; then
  sudo=()
  [[ "$(id -u)" -eq 0 ]] || sudo=(sudo)
  "${sudo[@]}" dpkg --add-architecture arm64
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" > /dev/null
fi
build=build/aarch64
[[ -f $build/build.ninja ]] ||
  cmake -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake -DMOEWE_KERNELS_ONLY=ON -DMOEWE_UNITY=8
tests=(base_test quant_test kernels_test)
cmake --build "$build" --target "${tests[@]}"

passed=0 failed=0 skipped=0
for test in "${tests[@]}"; do
  log=$build/$test.log
  # A death test starts the program again, which the emulator can't.
  timeout 1200 qemu-aarch64 "$build/$test" --gtest_filter='-*DeathTest*' > "$log" 2>&1 ||
    { failed=$((failed + 1)); tail -n 60 "$log"; }
  passed=$((passed + $(grep -c '^\[       OK \]' "$log" || true)))
  skipped=$((skipped + $(grep -cE '^\[  SKIPPED \] .*\(' "$log" || true)))
  left_out=$(qemu-aarch64 "$build/$test" --gtest_list_tests | awk '/^[^ ]/ {death = /DeathTest/} /^ / && death' | wc -l)
  ((left_out == 0)) || echo "$test: $left_out death tests left out"
  skipped=$((skipped + left_out))
done
echo "$passed passed, $failed failed, $skipped skipped"
[[ $failed -eq 0 ]]
