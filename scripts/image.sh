#!/usr/bin/env bash
# Builds, starts and tests the container images: image.sh prepare | build | test | base | run [OPTION ...] | engine WORD ...
#   BASE=...    the image to build on; without a registry one is made of Debian packages
#   TARGETS=... "slim full" if it is not set
#   NAME=...    what the images are called, mcpproxy if it is not set
# `build` puts what each image holds beside it: build/NAME-TARGET.cdx.json, a list in CycloneDX. `base` prints the BASE, else
# the Dockerfile's, with the digest that its tag has now, which asks its registry.
# `run` and `engine` take what `docker run` and `docker` take. Uses docker where its service runs, else buildah and
# podman, which `prepare` installs where it may, and makes a base for. Exit status 3, with the reason on stderr, where
# images cannot be built or started.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=${TARGETS:-slim full}
image=${NAME:-mcpproxy}
suite=trixie
base=${BASE:-}

give_up() {
    printf 'image.sh: %s\n' "$*" >&2
    exit 3
}

# In a sandbox the cgroups' version 2 hierarchy may be there without controllers, and podman takes it for a whole one.
pod() {
    if [[ -d /sys/fs/cgroup/unified && $EUID == 0 ]]; then
        unshare -m sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"' podman "$@"
    else
        podman "$@"
    fi
}

engine=
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    engine=docker
elif command -v buildah >/dev/null && command -v podman >/dev/null; then
    engine=podman
elif [[ ${1:-} =~ ^(prepare|build|test)$ && $EUID == 0 ]] && command -v apt-get >/dev/null; then
    printf 'image.sh: installing buildah and podman\n' >&2
    packages=(buildah podman crun runc mmdebstrap netavark aardvark-dns iptables)
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${packages[@]}"; } \
        >/dev/null 2>&1 || give_up "no docker service here, and apt could not install buildah and podman"
    engine=podman
else
    give_up "no docker service here, and neither buildah nor podman"
fi

# The base when none is named: of the distribution's packages, so that no registry of images is asked. Like the public
# slim images it has no manuals and no translations; it is about as large as they are.
debian_base() {
    local name=localhost/python-base:$suite-slim archive
    local left_out=(--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright')
    if ! pod image exists "$name"; then
        command -v mmdebstrap >/dev/null || give_up "name a BASE, or install mmdebstrap to make one"
        archive=$(mktemp --suffix=.tar)
        printf 'image.sh: making %s of Debian packages\n' "$name" >&2
        mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates "${left_out[@]}" \
            "$suite" "$archive" >&2 || give_up "mmdebstrap could not make a base image"
        pod import "$archive" "$name" >/dev/null || give_up "podman cannot keep an image here"
        rm -f "$archive"
    fi
    printf '%s\n' "$name"
}

# A base, and a look whether a container that is built here can install packages and be started.
prepare() {
    [[ $engine == podman ]] || return 0
    [[ -n $base ]] || base=$(debian_base)
    local probe='ARG BASE
FROM ${BASE}
RUN python3 -m venv /probe && /probe/bin/pip install -q dumb-init'
    bud -t localhost/mcpproxy-probe -f - . <<<"$probe" >/dev/null ||
        give_up "nothing can be built on $base, or no package index is reached from there"
    run --rm localhost/mcpproxy-probe true >/dev/null || give_up "podman cannot start a container here"
}

# A folder to build in, with the Dockerfile, what it copies, and of that what git tracks where git is used: the engine
# never sees the secrets, settings and data that a checkout may hold beside them.
make_context() {
    local copied file
    context=$(mktemp -d)
    trap 'rm -rf "$context"' EXIT
    read -ra copied < <(sed -n 's/^COPY \([^-].*\) [^ ]*$/\1/p' Dockerfile | tr '\n' ' ') || true
    copied+=(Dockerfile)
    if git ls-files --error-unmatch "${copied[@]}" >/dev/null 2>&1; then
        git ls-files -z "${copied[@]}"
    else
        find "${copied[@]}" -type f -print0
    fi | while IFS= read -r -d '' file; do
        [[ ! -e $file ]] || printf '%s\0' "$file"
    done | tar -c --null -T - | tar -x -C "$context"
    # An engine may take a new time stamp for a change, and build everything again.
    find "$context" -exec touch -t 200001010000 {} +
}

build() {
    local target
    prepare
    make_context
    for target in $targets; do
        if [[ $engine == docker ]]; then
            docker build ${base:+--build-arg "BASE=$base"} --target "$target" -t "$image:$target" "$context"
        else
            bud --target "$target" -t "localhost/$image:$target" "$context"
        fi
        mkdir -p build
        (run --rm -i --network none --entrypoint python3 "$image:$target" - <scripts/sbom.py) >"build/${image##*/}-$target.cdx.json"
    done
}

print_base() {
    local name=${base:-$(sed -n 's/^ARG BASE=//p' Dockerfile)} digest=
    name=${name%@*}
    if [[ $engine == docker ]]; then
        digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$name") || true
    else
        command -v skopeo >/dev/null || give_up "without docker, skopeo asks for the digest: apt-get install skopeo"
        digest=$(skopeo inspect --format '{{.Digest}}' "docker://$name") || true
    fi
    [[ $digest == sha256:* ]] || give_up "no registry tells the digest of $name"
    printf '%s@%s\n' "$name" "$digest"
}

# The building machine's certificates serve a network that has its own; they do not become part of the image.
bud() {
    buildah bud --isolation chroot --layers --format docker --build-arg "BASE=$base" -v /etc/ssl/certs:/etc/ssl/certs:ro \
        "$@"
}

run() {
    if [[ $engine == docker ]]; then
        exec docker run "$@"
    fi
    # Limits that may be lowered but not raised where the caller is not the machine's owner; systemd calls the health
    # check where there is one.
    local options=(--ulimit nofile=1024:4096 --ulimit nproc=4096:4096)
    [[ -d /run/systemd/system ]] || options+=(--no-healthcheck)
    pod --runtime crun run "${options[@]}" "$@"
}

case ${1:-} in
prepare) prepare ;;
build) build ;;
base) print_base ;;
run) run "${@:2}" ;;
engine) if [[ $engine == docker ]]; then docker "${@:2}"; else pod "${@:2}"; fi ;;
test)
    build
    .venv/bin/python -m pytest -n 0 -m "image and not soak" tests/image
    ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
