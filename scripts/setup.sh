#!/usr/bin/env bash
# Installs what the build needs and this machine lacks (Debian 12 packages; a Rust toolchain only if there
# is none new enough). Does nothing, quickly, when all is there.
#
#   scripts/setup.sh          compilers and libraries to build and test
#   scripts/setup.sh lint     also clang-19 with its formatter, linter and fuzzer
set -euo pipefail

packages=(g++ cmake ninja-build make pkg-config ccache mold git ca-certificates
  nlohmann-json3-dev libfmt-dev libcli11-dev libhwy-dev libboost-dev libutf8proc-dev libssl-dev liburing-dev
  zlib1g-dev python3-numpy libgtest-dev libgmock-dev libsimde-dev libbenchmark-dev)
if [[ "${1:-}" == lint ]]; then
  packages+=(clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev python3)
fi

# The oldest cargo that builds the tokenizers crate's dependencies.
cargo_min=1.88
cargo_ok() {
  command -v cargo > /dev/null &&
    [[ "$(printf '%s\n' "$cargo_min" "$(cargo --version | cut -d' ' -f2)" | sort -V | head -n1)" == "$cargo_min" ]]
}
cargo_ok || packages+=(cargo-web)

missing=()
for package in "${packages[@]}"; do
  [[ "$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null)" == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get > /dev/null; then
  echo "setup: this is not Debian or Ubuntu; please install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
sudo=()
[[ "$(id -u)" -eq 0 ]] || sudo=(sudo)
echo "setup: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
hash -r
cargo_ok || { echo "setup: cargo >= $cargo_min is needed and apt's cargo-web did not bring it" >&2; exit 1; }
