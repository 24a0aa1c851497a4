#!/usr/bin/env bash
# What launch/tpu_vm.sh does on each worker of a slice.  It comes there with the source and is called over
# ssh; nobody needs to call it by hand.
#
#   install                 Python, a virtual environment, this package with libtpu
#   mount BUCKET            a Cloud Storage bucket as ~/genenv_jax/bucket
#   start RUN WORKDIR ARG…  python -m genenv_jax.main, detached; a relative WORKDIR is below ~/genenv_jax
#   follow OFFSET SECONDS   the run's log from that byte on, until the run ends or the time is over
#   status                  one line: "tpu_vm_worker: HOST STATE RUN", STATE as in `status` below
#   tail LINES              the end of the log, every line with the worker's name
#   stop                    ends the run
#   forget                  ends it and removes what `status` knows of it
#
# Everything is below ~/genenv_jax: source/, venv/, data/, bucket/, workdir/ and run/, which has
# name (of the run), pid, lock, log and, once the run has ended, exit_code.
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

find_python() {
  local python
  for python in python3.11 python3.12; do
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

install_package() {
  local python
  # The images are Ubuntu 22.04, whose own Python is 3.10.
  if ! find_python >/dev/null; then
    sudo add-apt-repository --yes ppa:deadsnakes/ppa
    apt update
    apt install python3.11 python3.11-venv
  fi
  python=$(find_python) || fail "there is no Python 3.11 or 3.12 with venv, also after installing one"
  # One that was cut off while it was made has no pip.
  if ! "$base/venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$base/venv"
    "$python" -m venv "$base/venv"
  fi
  "$base/venv/bin/python" -m pip --disable-pip-version-check install --quiet \
    --editable "$base/source[tpu]"
}

mount_bucket() {
  local bucket=$1 list key
  if ! command -v gcsfuse >/dev/null; then
    # https://cloud.google.com/storage/docs/cloud-storage-fuse/install
    key=/usr/share/keyrings/cloud.google.asc
    list=/etc/apt/sources.list.d/gcsfuse.list
    curl --fail --silent --show-error https://packages.cloud.google.com/apt/doc/apt-key.gpg \
      | sudo tee "$key" >/dev/null
    echo "deb [signed-by=$key] https://packages.cloud.google.com/apt gcsfuse-$(lsb_release -cs) main" \
      | sudo tee "$list" >/dev/null
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
  local name=$1 workdir=$2 wait
  shift 2
  mkdir -p "$run"
  if running; then
    fail "run $(cat "$run/name") is still going on"
  fi
  rm -f "$run/exit_code" "$run/pid"
  echo "$name" >"$run/name"
  [[ $workdir == /* ]] || workdir=$base/$workdir
  mkdir -p "$workdir"
  # Its own session and no open file of this one: it outlives the connection.
  setsid nohup flock --nonblock "$run/lock" bash "${BASH_SOURCE[0]}" supervise "$workdir" "$@" \
    >"$run/log" 2>&1 </dev/null &
  for ((wait = 0; wait < 200; wait++)); do
    if [[ -e $run/pid ]]; then
      return
    fi
    sleep 0.05
  done
  cat "$run/log" >&2
  fail "the run did not start"
}

# The run itself; its log is this process's output.
supervise() {
  local workdir=$1 status=0 line
  shift
  trap : TERM # the program gets it too; this process stays to write down how it ended
  echo $$ >"$run/pid.new"
  mv "$run/pid.new" "$run/pid"
  cd "$base/source"
  if [[ -d $base/data ]]; then
    export GENENV_DATA=$base/data
  fi
  if [[ -e $base/run.env ]]; then
    # Not sourced: an odd value would run as a command, and show up in the log.
    while IFS= read -r line || [[ -n $line ]]; do
      if [[ $line =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then
        export "${line%%=*}=${line#*=}"
      fi
    done <"$base/run.env"
    rm -f "$base/run.env"
  fi
  PYTHONUNBUFFERED=1 "$base/venv/bin/python" -m genenv_jax.main "--workdir=$workdir" "$@" || status=$?
  echo "$status" >"$run/exit_code.new"
  mv "$run/exit_code.new" "$run/exit_code"
}

follow() {
  local offset=$1 seconds=$2
  [[ -e $run/pid ]] || fail "no run has been started here"
  # A dropped connection may leave a reader behind; the limit bounds how long it lives.
  timeout "$seconds" tail --pid="$(cat "$run/pid")" --sleep-interval=0.2 --follow=name \
    --bytes=+$((offset + 1)) "$run/log"
}

# none: no run was started; running; exit:CODE: ended; lost: neither, as after a restart of the VM
status() {
  local state=lost name=-
  if [[ ! -e $run/name ]]; then
    state=none
  elif [[ -e $run/exit_code ]]; then
    state=exit:$(cat "$run/exit_code")
  elif running; then
    state=running
  fi
  if [[ -e $run/name ]]; then
    name=$(cat "$run/name")
  fi
  echo "tpu_vm_worker: $HOSTNAME $state $name"
}

tail_log() {
  if [[ -e $run/log ]]; then
    tail --lines="$1" "$run/log" | sed "s/^/[$HOSTNAME] /"
  fi
}

stop() {
  local group wait
  if ! running; then
    return
  fi
  group=$(ps -o pgid= -p "$(cat "$run/pid")" | tr -d ' ')
  kill -TERM -- "-$group" || true
  for ((wait = 0; wait < 300; wait++)); do
    if ! running; then
      return
    fi
    sleep 0.1
  done
  kill -KILL -- "-$group" || true
}

command=${1:-}
shift || true
case $command in
  install) install_package ;;
  mount) mount_bucket "$@" ;;
  start) start "$@" ;;
  supervise) supervise "$@" ;;
  follow) follow "$@" ;;
  status) status ;;
  tail) tail_log "$@" ;;
  stop) stop ;;
  forget)
    stop
    rm -f "$run/name" "$run/exit_code" "$run/pid"
    ;;
  *) fail "unknown command '$command'" ;;
esac
