#!/usr/bin/env bash
# libsluice as a machine has it where nothing but its two packages is installed: tests/client/installed.sh BUILD SLUICED
# pkg-config finds it by its own file alone, CMake by its package, the manual has no warning, and the example runs against a
# daemon. Prints each check; exit 1 if one fails, 77 where pkg-config is not installed.
set -uo pipefail
build=$1 sluiced=$2
command -v pkg-config > /dev/null || { echo "SKIPPED installed: no pkg-config here"; exit 77; }
root=$(mktemp -d)
daemon=
cleanup() {
    [ -z "$daemon" ] || kill "$daemon" 2> /dev/null
    rm -rf "$root"
}
trap cleanup EXIT

# shellcheck source=tests/check.sh
. "$(dirname "$0")/../check.sh"

install() {
    local part
    for part in libsluice0 libsluice-dev; do
        DESTDIR=$root cmake --install "$build" --component "$part"
    done
}
check "both components are installed" install
libraries=$(dirname "$(find "$root" -name 'libsluice.so.0' | head -1)")
prefix=$(dirname "$(dirname "$(find "$root" -name sluice.h | head -1)")")
export LD_LIBRARY_PATH=$libraries

# No other package's file is there: what is private to the library is nobody's to have.
pkg_config() { PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$libraries/pkgconfig pkg-config "$@" sluice; }
by_pkg_config() {
    local flags
    flags=$(pkg_config --cflags --libs) || { pkg_config --print-errors --libs; return 1; }
    # shellcheck disable=SC2086
    "${CC:-cc}" -Wall -Wextra -Werror "$(find "$root" -name generate.c)" -o "$root/generate" $flags -I"$prefix/include" -L"$libraries"
}
by_cmake() {
    cmake -S "$(dirname "$(find "$root" -path '*examples*' -name generate.c)")" -B "$root/build" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$root/build"
}
by_another_version() {
    mkdir -p "$root/other"
    printf 'cmake_minimum_required(VERSION 3.13)\nproject(other LANGUAGES C)\nfind_package(sluice 999.1 REQUIRED)\n' > "$root/other/CMakeLists.txt"
    ! cmake -S "$root/other" -B "$root/other/build" -DCMAKE_PREFIX_PATH="$prefix"
}
check "pkg-config --cflags --libs sluice, with no file beside its own" by_pkg_config
check "find_package(sluice)" by_cmake
check "find_package(sluice) of another version is refused" by_another_version

every_function_has_a_page() {
    local name pages
    pages=$(find "$root" -name man3)
    grep -oE '^SLUICE_API .*' "$prefix/include/sluice.h" | grep -oE 'sluice_[a-z_]+\(' | tr -d '(' | while read -r name; do
        gzip -dc "$pages/$name.3.gz" | grep -q '^\.SH DESCRIPTION' || { echo "no page of $name"; exit 1; }
        gzip -dc "$pages/libsluice.3.gz" | grep -q "^\.BR $name (3)" || { echo "libsluice(3) does not list $name"; exit 1; }
    done
}
pages_are_clean() {
    local page said
    for page in "$(find "$root" -name man3)"/*.gz; do
        said=$(LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 > /dev/null)
        [ -z "$said" ] || { echo "$page: $said"; return 1; }
    done
}
check "every function has its page" every_function_has_a_page
if command -v man > /dev/null; then
    check "the pages have no warning" pages_are_clean
else
    echo "SKIPPED the pages have no warning: man is not installed"
fi

# A synthetic model: what comes of a text is the same each time, and is not looked at.
export SLUICE_SOCKET=$root/s
"$sluiced" --model synthetic:null --device cpu --socket "$SLUICE_SOCKET" > "$root/log" 2>&1 &
daemon=$!
for _ in $(seq 300); do
    [ ! -S "$SLUICE_SOCKET" ] || break
    sleep 0.1
done
answers() { # PROGRAM
    local said
    said=$("$1" 'one' 'two') || { echo "$said"; return 1; }
    [ "$(grep -ac '^one\|^two' <<< "$said")" -eq 2 ] || { echo "$said"; return 1; }
}
check "the example answers, built by pkg-config" answers "$root/generate"
check "the example answers, built by CMake" answers "$root/build/generate"
exit $failed
