#!/usr/bin/env bash
# Builds the packages, unpacks them into a scratch root, and looks at what a machine would get:
#     tests/service/packages.sh
# Prints each check; exit 1 if one fails.
set -euo pipefail
cd "$(dirname "$0")/../.."

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
deploy/packages.sh > "$root/built" 2>&1 || {
    tail -n 40 "$root/built" >&2
    exit 1
}
for package in .build/packages/*.deb; do
    dpkg-deb -x "$package" "$root"
done

# shellcheck source=tests/check.sh
. tests/check.sh
silent() { # COMMAND...: succeeds and prints nothing
    local said
    said=$("$@" 2>&1) || true
    [ -z "$said" ] || { echo "$said"; return 1; }
}
sluiced() { env -i PATH=/usr/bin:/bin "$root/usr/bin/sluiced" "$@"; }

# ---- programs

model_is_checked() { sluiced --model synthetic:null --device cpu --check | grep -q '^device  *cpu'; }
config_is_read() { sluiced --config "$root/etc/sluice/sluiced.conf" --print-config; }
config_is_the_defaults() {
    diff <(sluiced --print-config) <(config_is_read)
    diff <(sluiced --print-config) <(sed 1,3d "$root/etc/sluice/sluiced.conf")
}
library_links() {
    printf '#include <sluice.h>\n#include <stdio.h>\nint main(void) { return !puts(sluice_version()); }\n' > "$root/x.c"
    # shellcheck disable=SC2046
    "${CC:-cc}" "$root/x.c" -o "$root/x" $(PKG_CONFIG_SYSROOT_DIR=$root \
        PKG_CONFIG_LIBDIR=$(echo "$root"/usr/lib/*/pkgconfig) pkg-config --cflags --libs sluice)
    LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu) "$root/x"
}
page_is_clean() { # no warning of roff's
    local said
    said=$(LC_ALL=C.UTF-8 man --warnings -l "$1" 2>&1 > /dev/null)
    [ -z "$said" ] || { echo "$said"; return 1; }
}
options_are_in_page() {
    local option
    sluiced --help | sed -n '/^Each of these/,$s/^  --\([a-z-]*\) .*/\1/p' | while read -r option; do
        zgrep -qF -- "${option//-/\\-}" "$1" || { echo "no $option in $1"; exit 1; }
    done
}
check "sluiced --check says what would be served" model_is_checked
check "the shipped configuration is read and holds the defaults" config_is_the_defaults
check "a program links with libsluice-dev and runs with libsluice0" library_links
for page in man8/sluiced.8.gz man5/sluiced.conf.5.gz man1/sluice.1.gz; do
    if command -v man > /dev/null; then
        check "$page has no warning" page_is_clean "$root/usr/share/man/$page"
    else
        echo "SKIPPED $page has no warning: man is not installed"
    fi
done
check "every option is in sluiced.8" options_are_in_page "$root/usr/share/man/man8/sluiced.8.gz"
check "every option is in sluiced.conf.5" options_are_in_page "$root/usr/share/man/man5/sluiced.conf.5.gz"
check "sluice runs" "$root/usr/bin/sluice" --version

# ---- control files

packages=$(for file in .build/packages/*.deb; do basename "${file%%_*}"; done)
fields_hold() {
    local package version
    version=$(dpkg-deb -f .build/packages/sluiced_*.deb Version)
    for package in sluiced sluice libsluice0 libsluice-dev; do
        grep -qx "$package" <<< "$packages" || { echo "no $package"; return 1; }
    done
    for package in $packages; do
        [ "$(dpkg-deb -f .build/packages/"${package}"_*.deb Package)" = "$package" ] || return 1
        [ "$(dpkg-deb -f .build/packages/"${package}"_*.deb Version)" = "$version" ] || return 1
        [ -f "$root/usr/share/doc/$package/copyright" ] || { echo "no copyright in $package"; return 1; }
        zgrep -q "^sluice ($version) " "$root/usr/share/doc/$package/changelog.gz" || { echo "no changelog in $package"; return 1; }
    done
    dpkg-deb -f .build/packages/sluiced_*.deb Depends | grep -q libuv1
    dpkg-deb -I .build/packages/sluiced_*.deb conffiles | grep -qx /etc/sluice/sluiced.conf
}
# What lintian calls an error, or hardening that is not there; no address of the authors' is given anywhere.
lintian_is_content() {
    local said
    said=$(lintian --fail-on error --display-info --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog \
        .build/packages/*.deb 2>&1) || { echo "$said"; return 1; }
    ! grep hardening <<< "$said"
}
hardened() { # every program, module and library; what comes as a program of jobs calls nothing that could be fortified
    local file said=0
    while read -r file; do
        grep -qE 'BIND_NOW|FLAGS.* NOW' <<< "$(readelf -dW "$file")" || { echo "no full RELRO: $file"; said=1; }
        grep -q GNU_RELRO <<< "$(readelf -lW "$file")" || { echo "no RELRO: $file"; said=1; }
        [[ $file == */sluice/programs/* ]] || grep -q '__[a-z]*_chk' <<< "$(readelf -W --dyn-syms "$file")" || { echo "nothing is fortified: $file"; said=1; }
    done < <(find "$root/usr" -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.*' \))
    return $said
}
# What is beside the programs: a model that is served from where it lies, dashboards, pages, completions.
extras_are_there() {
    local file
    sluiced --model "$root/usr/share/sluice/demo-model" --device cpu --check | grep -q '^model  *demo-model' || return 1
    for file in sluice/monitoring/{grafana.json,prometheus.yml,prometheus.rules.yml} sluice/tls/{nginx.conf,haproxy.cfg} \
        doc/sluiced/{README,service,http,tls}.md \
        doc/sluice/README.md bash-completion/completions/{sluiced,sluice} zsh/vendor-completions/{_sluiced,_sluice}; do
        [ -s "$root/usr/share/$file" ] || { echo "no $file"; return 1; }
    done
}
check "every program and library is hardened" hardened
check "example model, dashboard, alerts, pages and completions are there" extras_are_there
# The runtime is in it, everything else of NVIDIA's is not, and is found where the system finds libraries.
cuda_is_alone() {
    local module file version
    file=$(echo .build/packages/sluice-cuda_*.deb)
    version=$(dpkg-deb -f .build/packages/sluiced_*.deb Version)
    module=$(echo "$root"/usr/lib/*/sluice/sluice-cuda.so)
    dpkg-deb -f "$file" Depends | grep -qF "sluiced (= $version)" || { echo "it does not depend on sluiced of its version"; return 1; }
    [ "$(dpkg-deb -c "$file" | grep -v /sluice/programs/ | grep -c '\.so')" -eq 1 ] || { echo "libraries are bundled"; return 1; }
    ! objdump -p "$module" | grep -E 'R(UN)?PATH|NEEDED +lib(cudart|cuda|nccl|cublas)\.' || return 1
    objdump -p "$module" | grep -q 'NEEDED *libcublasLt' || { echo "no cuBLASLt"; return 1; }
    local needs has
    needs=$(objdump -T "$module" | grep -oE 'GLIBC_[0-9.]+' | cut -d_ -f2 | sort -Vu | tail -1)
    has=$(dpkg-deb -f "$file" Depends | sed -E 's/.*libc6 \(>= ([0-9.]+)\).*/\1/')
    [ "$(printf '%s\n%s\n' "$needs" "$has" | sort -V | tail -1)" = "$has" ] || { echo "it needs libc6 $needs, and asks for $has"; return 1; }
    grep -q cudaLaunchHostFunc "$module" || { echo "no runtime in it"; return 1; }
}
nothing_is_enabled() { silent find "$root/etc" -path '*systemd*'; }
check "packages have their names, dependencies, conffile and copyright" fields_hold
check "nothing is enabled" nothing_is_enabled
if command -v lintian > /dev/null; then
    check "lintian finds no error, and no lack of hardening" lintian_is_content
else
    echo "SKIPPED lintian: it is not installed"
fi
if grep -qx sluice-cuda <<< "$packages"; then
    check "sluice-cuda holds the CUDA runtime and no library of NVIDIA's, and goes with its sluiced" cuda_is_alone
else
    echo "SKIPPED sluice-cuda: no nvcc here"
fi

# ---- units, with the drop-in of the CUDA package

units=$root/usr/lib/systemd/system
for unit in sluiced.service sluiced@.service; do
    mkdir -p "$units/$unit.d"
    cp deploy/systemd/cuda.conf "$units/$unit.d/"
done
mkdir -p "$root/bin"
cp /bin/sh "$root/bin/sh" # ExecReload
verify() {
    local unit
    for unit in basic sysinit sockets multi-user local-fs local-fs-pre remote-fs remote-fs-pre shutdown network \
        paths slices timers umount swap; do
        printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$unit" > "$units/$unit.target"
    done
    silent systemd-analyze verify --man=no --root="$root" sluiced.service sluiced.socket sluiced-tcp.socket sluiced-metrics.socket \
        sluiced-agent.socket sluiced@x.service sluiced@x.socket sluiced-tcp@x.socket sluiced-metrics@x.socket sluiced-agent@x.socket
}
exposed() { systemd-analyze security --root="$root" --offline=true --threshold=20 "$1"; }
if command -v systemd-analyze > /dev/null; then
    check "systemd-analyze verify is silent" verify
    for unit in sluiced.service sluiced@x.service; do
        check "systemd-analyze security of $unit is at most 2.0" exposed "$unit"
        exposed "$unit" | tail -1 || true
    done
else
    echo "SKIPPED systemd-analyze: it is not installed"
fi
exit $failed
