#!/usr/bin/env bash
# Installs missing packages, configures, builds, and runs one command on the result: see usage
# below. No other file installs system packages. The packages are Debian's or Ubuntu's, through apt.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
preset=${FLASHATTN_PRESET:-release}
jobs=${FLASHATTN_JOBS:-$(nproc)}
llvm=${FLASHATTN_LLVM:-/usr/lib/llvm-22}

usage() {
  cat <<'TEXT'
usage: ./build.sh VERB [arguments]

  run FILE.mlir [flags]    compile and run attention, and verify the numbers; the flags are
                           flash-run's (./build.sh run --help lists them)
  test [lit arguments]     run every test; the last line is "N passed, N failed, N skipped"
  bench FILE.mlir [flags]  time it: median with spread, TFLOP/s, GB/s
  bundle                   make dist/flash-mlir-VERSION-linux-x86_64.tar.xz, which runs on machines
                           without LLVM
  build [targets]          only build
  help                     this text

environment:
  FLASHATTN_PRESET   release (default), debug (AddressSanitizer and UBSan) or bundle (static)
  FLASHATTN_JOBS     compile jobs at once; by default the number of cores
  FLASHATTN_LLVM     where LLVM and MLIR 22 are, /usr/lib/llvm-22 by default
  FLASHATTN_INSTALL  0 never calls apt, and says what is missing instead
TEXT
}

fail() {
  echo "build.sh: error: $1" >&2
  shift
  for line in "$@"; do echo "  $line" >&2; done
  exit 1
}

# Requirements of the build, as "path or command:package". An existing path or command counts,
# whatever its origin, so LLVM's own packages of release 22 serve as well as Debian's. "import NAME"
# is a Python module.
requirements=(
  "cmake:cmake"
  "ninja:ninja-build"
  "python3:python3"
  "xz:xz-utils"
  "clang++-22:clang-22"
  "ld.lld-22:lld-22"
  "$llvm/lib/cmake/llvm/LLVMConfig.cmake:llvm-22-dev"
  "$llvm/bin/FileCheck:llvm-22-tools"
  "$llvm/lib/cmake/mlir/MLIRConfig.cmake:libmlir-22-dev"
  "$llvm/bin/mlir-tblgen:mlir-22-tools"
  "/usr/include/gtest/gtest.h:libgtest-dev"
  "/usr/include/zstd.h:libzstd-dev"
  "/usr/include/zlib.h:zlib1g-dev"
  "/usr/include/libxml2/libxml/parser.h:libxml2-dev"
  "/usr/include/$(uname -m)-linux-gnu/ffi.h:libffi-dev"
)
if [[ $preset == debug ]]; then
  requirements+=("$llvm/lib/clang/22/lib/linux/libclang_rt.asan-$(uname -m).a:libclang-rt-22-dev")
fi

# Requirements of the tests alone: for the Python package, NumPy and the tools that build and
# install a wheel; for the C library, pkg-config.
test_requirements=(
  "pkg-config:pkg-config"
  "import numpy:python3-numpy"
  "import pip:python3-pip"
  "import setuptools:python3-setuptools"
  "import wheel:python3-wheel"
  "import ensurepip:python3-venv"
)

has_module() {
  local python
  for python in python3 /usr/bin/python3; do
    "$python" -c "import $1" 2>/dev/null && return
  done
  return 1
}

missing_packages() {
  local requirement probe
  for requirement in "${requirements[@]}"; do
    probe=${requirement%:*}
    if [[ $probe == "import "* ]]; then
      has_module "${probe#import }" || echo "${requirement##*:}"
    elif [[ $probe == /* ]]; then
      [[ -e $probe ]] || echo "${requirement##*:}"
    else
      command -v "$probe" >/dev/null || echo "${requirement##*:}"
    fi
  done
}

install_missing() {
  local missing
  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -eq 0 ]] && return

  [[ ${FLASHATTN_INSTALL:-1} != 0 ]] ||
    fail "missing packages: ${missing[*]}" "FLASHATTN_INSTALL=0 forbids installing them"
  command -v apt-get >/dev/null ||
    fail "missing packages: ${missing[*]}" \
      "expected apt-get to install them (Debian 12, or a system with LLVM's apt packages)" \
      "but found none; install LLVM and MLIR 22 yourself and name the place in FLASHATTN_LLVM"
  local sudo=()
  if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "missing packages: ${missing[*]}" "installing them needs root; run as root:" \
        "apt-get install ${missing[*]}"
    sudo=(sudo)
  fi

  echo "build.sh: installing ${missing[*]}" >&2
  local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
  if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then
    "${apt[@]}" update >&2 ||
      fail "apt-get update failed" "is the network up, and are the sources in /etc/apt right?"
  fi
  local package
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || fail \
      "expected the package $package in the apt sources but found none" \
      "this is $(. /etc/os-release && echo "$PRETTY_NAME")" \
      "Debian 12 has it in bookworm-security; elsewhere add LLVM's own apt source for release 22" \
      "(apt.llvm.org) and try again"
  done
  # An outdated package list names files that the mirror no longer has.
  "${apt[@]}" install --no-install-recommends -y "${missing[@]}" >&2 ||
    { "${apt[@]}" update >&2 && "${apt[@]}" install --no-install-recommends -y "${missing[@]}" >&2; } ||
    fail "apt-get could not install ${missing[*]}" "its own message stands above"

  mapfile -t missing < <(missing_packages)
  [[ ${#missing[@]} -eq 0 ]] ||
    fail "still missing after installation: ${missing[*]}" "is LLVM 22 somewhere else? Set FLASHATTN_LLVM"
}

configure() {
  local tree=$root/build/$preset
  [[ -f $tree/build.ninja ]] && return
  echo "build.sh: configuring the preset $preset" >&2
  local log
  log=$(cd "$root" && cmake --preset "$preset" \
    -DMLIR_DIR="$llvm/lib/cmake/mlir" -DLLVM_DIR="$llvm/lib/cmake/llvm" 2>&1) ||
    fail "cmake failed" "$log"
}

build() {
  install_missing
  configure
  # To standard error, because standard output is reserved for flash-run.
  cmake --build "$root/build/$preset" -j "$jobs" "$@" >&2
}

has_flag() {
  local pattern=$1 argument
  shift
  for argument in "$@"; do
    [[ $argument =~ ^--?($pattern)(=.*)?$ ]] && return 0
  done
  return 1
}

run_tests() {
  requirements+=("${test_requirements[@]}")
  install_missing
  configure
  local tree=$root/build/$preset status=0
  rm -f "$tree/test/results.json"
  LIT_OPTS="${LIT_OPTS:-} $*" cmake --build "$tree" -j "$jobs" --target check-flashattn || status=$?
  # The counts are the last line of the output. A failed build is a failure too.
  python3 "$root/test/summary.py" "$tree/test/results.json" || status=1
  return "$status"
}

verb=${1:-help}
[[ $# -gt 0 ]] && shift
case $verb in
run)
  [[ $# -gt 0 ]] || fail "expected a .mlir file after run but got none" "./build.sh run FILE.mlir"
  build --target flash-run
  mode=(--verify)
  if has_flag "verify|bench|expected-output|list-devices|help|help-hidden|version" "$@"; then
    mode=()
  fi
  exec "$root/build/$preset/bin/flash-run" "$@" "${mode[@]}"
  ;;
test)
  run_tests "$@"
  ;;
bench)
  [[ $# -gt 0 ]] || fail "expected a .mlir file after bench but got none" "./build.sh bench FILE.mlir"
  build --target flash-run
  mode=(--bench)
  has_flag "bench" "$@" && mode=()
  exec "$root/build/$preset/bin/flash-run" "$@" "${mode[@]}"
  ;;
bundle)
  preset=bundle
  # For the kernels that are compiled ahead of time.
  requirements+=("import numpy:python3-numpy" "import pip:python3-pip")
  build --target bundle
  ;;
build)
  build ${@:+--target "$@"}
  ;;
help | -h | --help)
  usage
  ;;
*)
  usage >&2
  fail "expected run, test, bench, bundle, build or help but got '$verb'"
  ;;
esac
