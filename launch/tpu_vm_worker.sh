#!/usr/bin/env bash
# What launch/tpu_vm.sh does on each worker of a slice.  It comes with the source and is called over ssh.
#
#   install BUCKET   Python, a virtual environment, this package with libtpu; BUCKET as ~/genenv_jax/bucket
#   start RUN ARG…   python -m genenv_jax.main --workdir=~/genenv_jax/bucket/runs/RUN ARG…, detached
#   follow OFFSET    the run's log from that byte on, until the run ends, but at most ten minutes
#   status           one line: "tpu_vm_worker: HOST STATE RUN", STATE as in `status` below
#   tail LINES       the end of the log, every line with the worker's name
#   stop             ends the run
#
# Everything is below ~/genenv_jax: source/, venv/, bucket/ and run/, which has name (of the run), pid, lock,
# log and, once the run has ended, exit_code.
set -euo pipefail

base=$HOME/genenv_jax
run=$base/run

fail() {
  echo "tpu_vm_worker on $HOSTNAME: $*" >&2
  exit 1
}

# A new VM updates itself for some minutes and holds the lock of apt.
apt() {
  sudo DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 --quiet --yes "$@"
}

install_package() {
  # The images are Ubuntu 22.04, whose own Python is 3.10.
  if ! python3.11 -c 'import ensurepip, venv' 2>/dev/null; then
    sudo add-apt-repository --yes ppa:deadsnakes/ppa
    apt update
    apt install python3.11 python3.11-venv
  fi
  # An environment whose creation was cut off has no pip.
  if ! "$base/venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$base/venv"
    python3.11 -m venv "$base/venv"
  fi
  "$base/venv/bin/python" -m pip --disable-pip-version-check install --quiet --editable "$base/source[tpu,bfcl]"
  # So that BFCL is scored by the same rule everywhere (configs/bfcl.py).
  "$base/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps bfcl-eval==2026.3.23
}

mount_bucket() {
  local bucket=$1 key=/usr/share/keyrings/cloud.google.asc
  if ! command -v gcsfuse >/dev/null; then
    # https://cloud.google.com/storage/docs/cloud-storage-fuse/install
    curl --fail --silent --show-error https://packages.cloud.google.com/apt/doc/apt-key.gpg \
      | sudo tee "$key" >/dev/null
    echo "deb [signed-by=$key] https://packages.cloud.google.com/apt gcsfuse-$(lsb_release -cs) main" \
      | sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
    apt update
    apt install gcsfuse
  fi
  mkdir -p "$base/bucket"
  if mountpoint --quiet "$base/bucket"; then
    return
  fi
  # No cached metadata: what one worker writes, the others see.  A checkpoint is finished by renaming its
  # directory, which gcsfuse refuses by default unless the bucket has a hierarchical namespace.
  gcsfuse --implicit-dirs --metadata-cache-ttl-secs=0 --metadata-cache-negative-ttl-secs=0 \
    --rename-dir-limit=1000000 "$bucket" "$base/bucket" \
    || fail "gs://$bucket cannot be mounted; expected a bucket that the service account of the slice" \
      "may read and write (roles/storage.objectUser)"
}

running() {
  [[ -e $run/lock ]] && ! flock --nonblock "$run/lock" true
}

start() {
  mkdir -p "$run" "$base/bucket/runs/$1"
  exec 9>"$run/lock" # held by the run and whatever it starts
  flock --nonblock 9 || fail "run $(cat "$run/name") is still going on"
  rm -f "$run/exit_code" "$run/log"
  echo "$1" >"$run/name"
  # Its own session and none of this one's files: it outlives the connection.
  setsid bash "${BASH_SOURCE[0]}" supervise "$@" >"$run/log" 2>&1 </dev/null &
  echo $! >"$run/pid"
}

# The run itself; its log is this process's output.
supervise() {
  local name=$1 status=0 line
  shift
  # A warm start, even half of one, outlives the VM, and all hosts see it.
  local models=("--config.model.make.cache_dir=$base/bucket/runs/$name/models")
  if [[ " $*" == *" ${models[0]%%=*}="* ]]; then models=(); fi
  trap : TERM # the program gets it too; this process stays to record how it ended
  cd "$base/source"
  if [[ -d $base/bucket/data ]]; then
    export GENENV_DATA=$base/bucket/data
  fi
  export JAX_COMPILATION_CACHE_DIR=$base/bucket/xla_cache # what was compiled outlives the VM
  if [[ -e $base/run.env ]]; then
    # Not sourced: an odd value would run as a command, and show up in the log.
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then export "${line?}"; fi
    done <"$base/run.env"
    rm -f "$base/run.env"
  fi
  PYTHONUNBUFFERED=1 "$base/venv/bin/python" -m genenv_jax.main "--workdir=$base/bucket/runs/$name" "$@" \
    "${models[@]}" || status=$?
  echo "$status" >"$run/exit_code.new"
  mv "$run/exit_code.new" "$run/exit_code"
}

# none: no run was started; running; exit:CODE: ended; lost: neither, as after a restart of the VM
status() {
  local state=none name=-
  if [[ -e $run/name ]]; then
    name=$(cat "$run/name")
    if [[ -e $run/exit_code ]]; then
      state=exit:$(cat "$run/exit_code")
    elif running; then
      state=running
    else
      state=lost
    fi
  fi
  echo "tpu_vm_worker: $HOSTNAME $state $name"
}

stop() {
  if running; then
    kill -TERM -- "-$(cat "$run/pid")" || true
    flock --timeout 30 "$run/lock" true || kill -KILL -- "-$(cat "$run/pid")"
  fi
}

command=${1:-}
shift || true
case $command in
  install)
    install_package
    mount_bucket "$@"
    ;;
  start | supervise | status | stop) "$command" "$@" ;;
  follow) timeout 600 tail --pid="$(cat "$run/pid")" --sleep-interval=0.2 --bytes=+$(($1 + 1)) --follow=name \
    --retry "$run/log" ;;
  tail) tail --lines="$1" "$run/log" | sed "s/^/[$HOSTNAME] /" ;;
  *) fail "unknown command '$command'" ;;
esac
