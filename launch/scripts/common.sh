# Shared by ./quickstart and ./check, which source it: messages, packages, build. `root` must be the project's folder.
# shellcheck shell=bash
export LC_ALL=C

build_dir=${ASHLAR_BUILD_DIR:-$root/build}
package_list=$root/launch/scripts/packages.debian

# fail CODE TEXT...: prints TEXT as one line on standard error and exits with CODE. README.md lists the exit codes.
fail() {
  local code=$1
  shift
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$code"
}

# now_us: prints the microseconds since 1970.
now_us() { printf '%s' "${EPOCHREALTIME/./}"; }

# seconds_since START_US: prints the seconds since START_US, like 12.3.
seconds_since() {
  local tenths=$((($(now_us) - $1) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# stage TITLE prints a header; stage_end prints the time since then, and adds it to the lines of `stages`.
stages=
stage() {
  stage_start=$(now_us) stage_title=$*
  printf '\n== %s\n' "$*"
}
stage_end() {
  local seconds
  seconds=$(seconds_since "$stage_start")
  stages+=$(printf '   %9s %s' "$seconds" "$stage_title")$'\n'
  printf '   %s%s s\n' "${1:+$1, }" "$seconds"
}

# missing_packages: prints the packages of the list that are not installed, one per line.
missing_packages() {
  local wanted installed
  wanted=$(sed 's/#.*//; /^ *$/d' "$package_list")
  # shellcheck disable=SC2086
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | sed -n 's/ installed$//p' || true)
  comm -23 <(sort -u <<<"$wanted") <(sort -u <<<"$installed")
}

# is_known_system OS_RELEASE_FILE: succeeds if the package list is valid for this system.
is_known_system() {
  [ -r "$1" ] || return 1
  case "$(. "$1" && printf '%s %s' "${ID:-}" "${VERSION_ID:-}")" in
    'debian 12' | 'ubuntu 24.04') return 0 ;;
  esac
  return 1
}

# install_packages: installs the missing packages. If none is missing, it calls no package manager and needs no network.
install_packages() {
  local missing sudo=
  missing=$(missing_packages | tr '\n' ' ')
  missing=${missing% }
  if [ -z "$missing" ]; then
    echo "   all $(sed 's/#.*//; /^ *$/d' "$package_list" | wc -l) packages are installed"
    return
  fi
  if ! is_known_system "${ASHLAR_OS_RELEASE:-/etc/os-release}"; then
    fail 2 "this system is neither Debian 12 nor Ubuntu 24.04; install what Debian calls: $missing" \
      "- then build with: cmake --preset release && cmake --build build"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail 2 "not root and no sudo; as root: apt-get install --no-install-recommends $missing"
    sudo=sudo
  fi
  echo "   installing: $missing"
  local log
  log=$(mktemp)
  if ! { $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends -o DPkg::Lock::Timeout=300 $missing; } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail 2 "apt-get could not install: $missing (its last lines are above, all of them in $log)"
  fi
  rm -f "$log"
}

# is_configured DIR: succeeds if CMake has configured DIR, with these `settings`.
is_configured() {
  local setting
  [ -e "$1/build.ninja" ] || return 1
  for setting in ${settings[@]+"${settings[@]}"}; do
    grep -q "^${setting%%=*}:[A-Z]*=${setting#*=}\$" "$1/CMakeCache.txt" || return 1
  done
}

# build DIR PRESET TARGET...: configures DIR if needed, with the `settings` (NAME=VALUE of CMake's cache), and builds
# the targets. Shows the compiler's output only if the build fails.
settings=()
build() {
  local dir=$1 preset=$2
  shift 2
  local log=$dir/build.log
  mkdir -p "$dir" || fail 6 "cannot make the build folder $dir"
  if ! is_configured "$dir" &&
    ! (cd "$root" && cmake --preset "$preset" -B "$dir" ${settings[@]+"${settings[@]/#/-D}"}) >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    fail 70 "cmake --preset $preset failed (its last lines are above, all of them in $log)"
  fi
  if [ -t 1 ] && [ -z "${CI:-}" ]; then
    # On a terminal: shows ninja's progress counter in one line.
    NINJA_STATUS='   [%f/%t] ' cmake --build "$dir" --target "$@" || fail 70 "the build in $dir failed, see above"
  elif ! cmake --build "$dir" --target "$@" >"$log" 2>&1; then
    grep -nE -A 12 'error|FAILED' "$log" | tail -n 60 >&2 || tail -n 60 "$log" >&2
    fail 70 "the build in $dir failed (its errors are above, all of it in $log)"
  fi
}
