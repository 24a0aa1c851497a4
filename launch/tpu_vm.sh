#!/usr/bin/env bash
# A run on a Cloud TPU VM slice, from creating the slice to deleting it.  See --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: launch/tpu_vm.sh --name=NAME --accelerator_type=TYPE --zone=ZONE --bucket=BUCKET [OPTION…] -- ARG…

Creates the slice, or reuses the one of that name; installs HEAD on every worker; starts
`python -m genenv_jax.main --workdir=BUCKET/runs/RUN ARG…` on all of them, detached; shows the log of worker
0; deletes the slice if it created it, even if the run failed.  Called again while the run is still going, it
follows that run.  The program runs in the repository and sees the bucket as ../bucket; $GENENV_DATA is the
bucket's data/.

Before it creates a slice, it checks the bucket.  If $PYTHON (default: python3) has genenv_jax and libtpu,
launch/aot_check.py also compiles the run for the slice, which takes some minutes.

  --accelerator_type=TYPE  v5litepod-16 (or v5e-16), v6e-8, v5p-8, v4-8, …
  --bucket=BUCKET          its name; best with a hierarchical namespace, in the slice's region
  --runtime_version=V      default: by generation
  --spot                   cheaper, but may be preempted at any time
  --queued                 request it as a queued resource, and wait
  --retries=N              how often to create the slice again and continue in the same workdir if the
                           slice is lost or cannot be created (default 0)
  --create_flag=FLAG       passed to gcloud unchanged, such as --create_flag=--reserved; repeatable
  --ssh_flag=FLAG          likewise for ssh and scp, such as --ssh_flag=--internal-ip; repeatable
  --run=RUN                name of the run and of its workdir (default: NAME)
  --env_file=FILE          lines KEY=value (taken literally, no quotes) for the program's environment,
                           such as HF_TOKEN=…; never shown, and deleted on a worker once it is read
  --keep                   do not delete the slice
  --no_check               create the slice without checking the bucket and the memory
  --poll_seconds=SECONDS   between two checks of the slice (default 15); a retry waits eight times as long
  --dry_run                print every command, in a form to paste, and run none

Exit code: the run's own; 2 for bad options, 75 if the slice or the run was lost more often than --retries
allows, 130 after Ctrl-C (the run goes on), 1 for any other failure of the launch.
USAGE
}

say() {
  if ((dry_run)); then printf '\n# %s\n' "$*"; else printf 'tpu_vm: %s\n' "$*" >&2; fi
}

# Says why an attempt failed, and returns the exit code if there is no other attempt.
lost() {
  printf 'tpu_vm: %s\n' "${*:2}" >&2
  return "$1"
}

# Ends with an exit code and a message.
fail() {
  lost "$@" || exit
}

# A command as a line to paste.
spell() {
  local word
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]] || word=${word@Q}
    printf '%s ' "$word"
  done
  echo
}

# gcloud itself.  A dry run prints the call, and answers as if there were no slice at first and all went well.
gcloud() {
  local host
  if ((!dry_run)); then
    command gcloud "$@" 3>&-
    return $? # in an EXIT trap a bare one gives the status from before the trap
  fi
  spell gcloud "$@" >&3
  case "$*" in
    *" create "*) touch "$scratch/created" ;;
    *" tpu-vm describe "*) if test -e "$scratch/created"; then echo READY; else echo ABSENT; fi ;;
    *" start "*) touch "$scratch/started" ;;
    *" status;"*)
      for ((host = 0; host < hosts; host++)); do
        if test -e "$scratch/started"; then echo "tpu_vm_worker: $host exit:0 $run"; else
          echo "tpu_vm_worker: $host none -"
        fi
      done
      ;;
  esac
}

# ---- what was asked for ---------------------------------------------------------------------------

name="" accelerator_type="" zone="" bucket="" runtime_version="" run="" env_file=""
spot=0 queued=0 keep=0 no_check=0 dry_run=0 retries=0 poll_seconds=15
create_flags=() ssh_flags=() program_arguments=()

read_options() {
  local option value
  while (($#)); do
    option=$1 value=${1#*=}
    shift
    case $option in
      --help)
        usage
        exit 0
        ;;
      --spot | --queued | --keep | --no_check | --dry_run) printf -v "${option#--}" 1 ;;
      --create_flag=*) create_flags+=("$value") ;;
      --ssh_flag=*) ssh_flags+=("$value") ;;
      --name=* | --accelerator_type=* | --zone=* | --bucket=* | --runtime_version=* | --run=* | \
        --env_file=* | --retries=* | --poll_seconds=*)
        [[ -n $value ]] || fail 2 "$option is empty; leave it out or give it a value"
        option=${option%%=*}
        printf -v "${option#--}" '%s' "$value"
        ;;
      --)
        program_arguments=("$@")
        return
        ;;
      *) fail 2 "unknown option '$option'; options are --key=value (see --help), and the program's" \
        "arguments come after --" ;;
    esac
  done
}

# Says what is wrong with an option's value.  Arguments: option, pattern, what was expected.
match() {
  [[ -n ${!1} ]] || fail 2 "--$1 is missing; expected $3"
  [[ ${!1} =~ ^($2)$ ]] || fail 2 "--$1=${!1}: expected $3"
}

# Sets `hosts`, the number of workers, and the default of `runtime_version`.
#   chips and VMs: https://cloud.google.com/tpu/docs/v5e, v6e (the number counts chips; 1, 4 and 8 are one
#     VM, larger slices have 4 chips a VM), v5p, v4 (it counts TensorCores, two a chip, 4 chips a VM)
#   versions: https://cloud.google.com/tpu/docs/runtimes
understand_slice() {
  local size=${accelerator_type##*-} version
  accelerator_type=${accelerator_type/#v5e-/v5litepod-} # as Google's pages write it
  match accelerator_type '(v5litepod|v6e)-(1|4|8|16|32|64|128|256)|(v5p|v4)-[1-9][0-9]{0,4}' \
    "v5litepod- (v5e) or v6e- and 1, 4, 8, 16, 32, 64, 128 or 256 chips, or v5p- or v4- and TensorCores"
  case $accelerator_type in
    v5litepod-*) version=v2-alpha-tpuv5-lite hosts=$((size <= 8 ? 1 : size / 4)) ;;
    v6e-*) version=v2-alpha-tpuv6e hosts=$((size <= 8 ? 1 : size / 4)) ;;
    v5p-*) version=v2-alpha-tpuv5 hosts=$((size / 8)) ;;
    v4-*) version=tpu-ubuntu2204-base hosts=$((size / 8)) ;;
  esac
  [[ $accelerator_type == v5litepod-* || $accelerator_type == v6e-* ]] || ((size % 8 == 0)) \
    || fail 2 "--accelerator_type=$accelerator_type: expected a multiple of 8 TensorCores"
  : "${runtime_version:=$version}"
}

check_options() {
  local argument config="" distributed=0 bad
  match name '[a-z]([-a-z0-9]{0,61}[a-z0-9])?' "lower-case letters, digits and hyphens, 63 at most"
  match zone '[a-z]+(-[a-z0-9]+)+' "a zone such as europe-west4-b"
  match bucket '[a-z0-9][-a-z0-9._]+[a-z0-9]' "the name of a Cloud Storage bucket, without gs:// and path"
  understand_slice
  : "${run:=$name}"
  match run '[A-Za-z0-9][A-Za-z0-9._-]*' "letters, digits, dots, hyphens and underscores"
  match retries '[0-9]{1,4}' "a whole number"
  match poll_seconds '[0-9]{1,4}' "a whole number"
  for argument in ${program_arguments[@]+"${program_arguments[@]}"}; do
    case $argument in
      --config=*) config=${argument#*=} ;;
      --distributed=auto) distributed=1 ;;
      --workdir | --workdir=*) fail 2 "$argument: the workdir is set by --bucket and --run" ;;
    esac
  done
  [[ -n $config ]] || fail 2 "there is no --config=… after --; expected the arguments of genenv_jax.main"
  ((hosts == 1 || distributed)) || fail 2 "$accelerator_type has $hosts hosts, each of which would run" \
    "alone; expected --distributed=auto after --"
  if [[ -n $env_file ]]; then
    # gcloud takes what is before a colon for a host.
    [[ -f $env_file && -r $env_file && $env_file != *:* && $env_file != -* ]] \
      || fail 2 "--env_file=$env_file: expected a file that can be read, with no colon in its path"
    # The number of the line, and not the line: it may hold a token.
    bad=$(grep -nvE '^[[:space:]]*(#.*)?$|^[A-Za-z_][A-Za-z0-9_]*=' "$env_file" | head -n 1 || true)
    [[ -z $bad ]] || fail 2 "--env_file=$env_file: line ${bad%%:*} is not KEY=value"
  fi
  config=${config%%:*}
  [[ $config == /* || $config == ../* ]] || git -C "$root" cat-file -e "HEAD:$config" 2>/dev/null \
    || fail 2 "--config=$config is not in HEAD, which is what the workers get; expected a committed file"
  ((dry_run)) || command -v gcloud >/dev/null \
    || fail 1 "there is no gcloud on PATH; expected the Google Cloud CLI (https://cloud.google.com/sdk)"
}

# ---- the slice ------------------------------------------------------------------------------------

# Sets `state` (a state of the API, ABSENT, or UNKNOWN if gcloud cannot tell), `found_type`, and `found_by`,
# which is "genenv" if this launcher created the slice.
look() {
  if answer=$(gcloud compute tpus tpu-vm describe "$name" "${place[@]}" \
    '--format=value(state,acceleratorType,labels.launcher)' 2>"$scratch/errors"); then
    read -r state found_type found_by <<<"$answer" || true
    : "${state:=UNKNOWN}"
  elif grep -qiE 'NOT_FOUND|not found' "$scratch/errors"; then
    state=ABSENT
  else
    state=UNKNOWN
    cat "$scratch/errors" >&2
  fi
}

# Sets `request`, the state of the queued request (empty if there is none), and `found_by` as above.
look_for_request() {
  request=""
  if answer=$(gcloud compute tpus queued-resources describe "$name" "${place[@]}" \
    '--format=value(state.state,tpu.nodeSpec[0].node.labels.launcher)' 2>"$scratch/errors"); then
    read -r request found_by <<<"$answer" || true
  elif ! grep -qiE 'NOT_FOUND|not found' "$scratch/errors"; then
    request=UNKNOWN
    cat "$scratch/errors" >&2
  fi
}

# Checks before a slice is paid for: the bucket is there, and the run fits.
check_before_paying() {
  local arguments=(--topology="${accelerator_type/#v5litepod-/v5e-}" --fast) argument code=0
  local python=${PYTHON:-python3}
  if ((no_check)); then return; fi
  no_check=1 # once is enough
  say "check the bucket"
  gcloud storage ls "gs://$bucket" >"$scratch/bucket" \
    || fail 1 "gs://$bucket cannot be listed (gcloud says why above); expected a bucket that you may read"
  ((dry_run)) || grep -q '/data/$' "$scratch/bucket" \
    || say "warning: there is no gs://$bucket/data/, so benchmarks find no files (docs/launching.md)"
  for argument in "${program_arguments[@]}"; do
    if [[ $argument == --config=* || $argument == --config.* || $argument == --arm=* ]]; then arguments+=("$argument"); fi
  done
  say "does the run fit $accelerator_type?"
  if ((dry_run)); then
    spell "$python" "$root/launch/aot_check.py" "${arguments[@]}"
  elif "$python" -c 'import genenv_jax, libtpu' 2>/dev/null; then
    (cd "$root" && "$python" launch/aot_check.py "${arguments[@]}") >&2 || code=$?
    ((code == 0)) || fail 2 "aot_check.py ended with exit code $code (see above); --no_check skips this check"
  else
    say "not checked: $python has no genenv_jax or no libtpu (pip install -e '.[tpu]')"
  fi
}

create_slice() {
  local arguments=(tpu-vm create "$name" --version="$runtime_version")
  if ((queued)); then
    arguments=(queued-resources create "$name" --node-id="$name" --runtime-version="$runtime_version")
  fi
  arguments+=("${place[@]}" --accelerator-type="$accelerator_type" --labels=launcher=genenv)
  if ((spot)); then arguments+=(--spot); fi
  say "create $accelerator_type (hosts: $hosts)"
  slice_exists=1 ours=1 # from here on it may cost, even if the command fails or is interrupted
  gcloud compute tpus "${arguments[@]}" ${create_flags[@]+"${create_flags[@]}"} && return
  look
  if [[ $state == ABSENT ]] && ((!queued)); then slice_exists=0; fi
  lost 1 "slice $name could not be created (gcloud says why above)"
}

delete_slice() {
  say "delete the slice"
  "${delete[@]}" || return 1
  slice_exists=0
}

# Ensures that the slice is there and ready.
ensure_slice() {
  local created=0
  say "is there a slice $name?"
  while :; do
    look
    case $state in
      READY | CREATING | STARTING | RESTARTING | REIMAGING | REPAIRING)
        ((created)) || [[ $found_type == "$accelerator_type" ]] || fail 1 "slice $name exists and is a" \
          "${found_type:-slice of unknown type}; expected $accelerator_type, or another --name"
        slice_exists=1
        if [[ $found_by == genenv ]]; then ours=1; fi
        if [[ $state == READY ]]; then return; fi
        ;;
      ABSENT | PREEMPTED | TERMINATED | FAILED)
        if ((!created)); then
          [[ $state == ABSENT || $found_by == genenv ]] || fail 1 "slice $name is $state and was not created" \
            "by this launcher; expected another --name, or delete it: $(spell "${delete[@]}")"
          if ((queued)) && [[ $state == ABSENT ]]; then
            look_for_request
            [[ $request != UNKNOWN ]] || fail 1 "gcloud cannot say whether there is a request $name (see above)"
            if [[ $request =~ ^(FAILED|SUSPENDED|SUSPENDING)$ ]]; then # it keeps the name of a slice that is gone
              [[ $found_by == genenv ]] || fail 1 "the queued request $name is $request and was not created" \
                "by this launcher; expected another --name, or delete it: $(spell "${delete[@]}")"
              delete_slice || fail 1 "the queued request $name is $request and cannot be deleted"
              gone=1
            elif [[ -n $request ]]; then
              say "wait for the queued request $name, which is $request"
              slice_exists=1 created=1
              if [[ $found_by == genenv ]]; then ours=1; fi
              continue
            fi
          fi
          check_before_paying
          [[ $state == ABSENT ]] || delete_slice || fail 1 "slice $name is $state and cannot be deleted"
          create_slice || return
          created=1
          continue
        elif ((!queued)) || [[ $state != ABSENT ]]; then
          lost 75 "slice $name is $state and will not become READY" || return
        fi
        look_for_request
        if [[ -z $request || $request =~ ^(FAILED|SUSPENDED|SUSPENDING|DELETING)$ ]]; then
          lost 75 "the queued request for slice $name is ${request:-gone}" || return
        fi
        ;;
      UNKNOWN) ((created)) || fail 1 "gcloud cannot say whether slice $name exists (see above)" ;;
      *) fail 1 "slice $name exists and is $state; expected READY (start it, or delete it)" ;;
    esac
    sleep "$poll_seconds"
  done
}

# ---- the workers ----------------------------------------------------------------------------------

worker_script=genenv_jax/source/launch/tpu_vm_worker.sh

# The shell command of a worker's part.
worker() {
  printf 'bash %s' "$worker_script"
  printf ' %q' "$@"
}

# Runs a shell command on one worker, or on "all" at once.  A lost connection is noticed after two minutes.
on_workers() {
  gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker="$1" \
    '--ssh-flag=-o ServerAliveInterval=30' '--ssh-flag=-o ServerAliveCountMax=4' \
    ${ssh_flags[@]+"${ssh_flags[@]}"} --command="$2"
}

send() {
  gcloud compute tpus tpu-vm scp "$1" "$name:$2" "${place[@]}" --worker=all \
    ${ssh_flags[@]+"${ssh_flags[@]}"}
}

# Asks all workers about the run.  Sets how many have `answered`, how many are `running` it and on how many it
# has `ended`, with its exit code in `run_status`, and any `other` run in progress.  Only the output counts:
# the exit code of ssh to several workers is not that of any of them.
poll() {
  local mark host run_state run_name code
  answer=$(on_workers all "if test -e $worker_script; then $(worker status); \
else echo \"tpu_vm_worker: \$HOSTNAME none -\"; fi" 2>"$scratch/errors") || true
  answered=0 running=0 ended=0 other="" run_status=0
  while read -r mark host run_state run_name; do
    [[ $mark == tpu_vm_worker: ]] || continue
    answered=$((answered + 1))
    case "$run_state $run_name" in
      "running $run") running=$((running + 1)) ;;
      running*) other="$run_name (on $host)" ;;
      exit:*" $run")
        ended=$((ended + 1)) code=${run_state#exit:}
        # If one process fails, the others end by a signal (128 and above), so its code is the cause.
        if ((code && (run_status == 0 || (run_status >= 128 && code < 128)))); then run_status=$code; fi
        ;;
    esac
  done <<<"$answer"
}

# The first contact: a VM that is READY may need minutes until it takes connections.
await_workers() {
  local tries
  say "wait until all workers answer"
  for ((tries = 0; tries < 20; tries++)); do
    poll
    if ((answered == hosts)); then return; fi
    sleep "$poll_seconds"
  done
  cat "$scratch/errors" >&2
  lost 1 "$answered of the $hosts workers of $name answer; expected all"
}

install_and_start() {
  local pack=(git -C "$root" archive --format=tar.gz --output="$archive" HEAD)
  say "copy the repository to every worker and install it"
  if ((dry_run)); then spell "${pack[@]}"; else "${pack[@]}" || return; fi
  send "$archive" genenv_jax-source.tar.gz || return
  on_workers all "if test -e $worker_script; then $(worker stop); fi; mkdir -p genenv_jax && cd genenv_jax \
&& rm -rf source && mkdir source && tar -xzf ../genenv_jax-source.tar.gz -C source" || return
  on_workers all "$(worker install "$bucket")" || return
  if [[ -n $env_file ]]; then
    say "copy the environment, readable by its owner only"
    on_workers all "install -m 600 /dev/null genenv_jax/run.env" || return
    send "$env_file" genenv_jax/run.env || return
  fi
  if ((gone)); then # else the run would be refused: it cannot know that the host in its locks is gone
    on_workers 0 "rm -f genenv_jax/bucket/runs/$run/run.lock genenv_jax/bucket/runs/$run/models/.*.lock" || return
    gone=0
  fi
  say "start the run on every worker"
  on_workers all "$(worker start "$run" "${program_arguments[@]}")"
}

# Continues to show the log of worker 0.  Fails if it is not at its end.
show_log() {
  on_workers 0 "$(worker follow $(($(wc -c <"$scratch/log"))))" 2>"$scratch/errors" | tee -a "$scratch/log"
}

# Waits for the end of the run, through lost connections.
await_end() {
  local late=0 shown
  say "follow worker 0 until the run ends"
  : >"$scratch/log"
  while :; do
    shown=1
    show_log || shown=0
    look
    if [[ $state == READY ]]; then
      poll
      if ((answered == hosts && running + ended < hosts)); then
        lost 75 "the run is lost on $((hosts - running - ended)) workers, as after a restart" || return
      fi
      # Time for what a lost connection cut off, and for others to end if one failed.
      if (((ended == hosts && shown) || ((ended == hosts || run_status) && ++late > 4))); then return 0; fi
    elif [[ ! $state =~ ^(UNKNOWN|REPAIRING|RESTARTING|REIMAGING)$ ]]; then
      gone=1
      lost 75 "slice $name was taken away during the run: it is $state" || return
    fi
    sleep "$poll_seconds"
  done
}

# One slice, one start.  Fails, and says why, if another attempt may help.
attempt() {
  ensure_slice || return
  await_workers || return
  if [[ -n $other ]]; then
    keep=1
    fail 1 "slice $name is busy with run $other; expected run $run, or another --name"
  elif ((running == hosts)); then
    say "run $run is already going; following it"
  elif ! install_and_start; then
    look
    [[ $state != READY ]] || fail 1 "the run could not be installed and started (see above)"
    lost 75 "slice $name was lost before the run started: it is $state" || return
  fi
  await_end
}

# ---- the end --------------------------------------------------------------------------------------

# On every exit.
# shellcheck disable=SC2329 # called by trap
finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  if ((slice_exists && ours && !keep)) && ! delete_slice; then
    printf 'tpu_vm: SLICE %s STILL EXISTS AND COSTS MONEY; delete it:\n  ' "$name" >&2
    spell "${delete[@]}" >&2
    if ((status == 0)); then status=1; fi
  elif ((slice_exists && !dry_run)); then
    say "slice $name is kept and costs money until it is deleted: $(spell "${delete[@]}")"
  fi
  rm -rf "$scratch" "$archive"
  exit "$status"
}

# shellcheck disable=SC2329
interrupted() {
  keep=1
  say "interrupted; a run that was started continues, and the same command follows it"
  exit 130
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
read_options "$@"
check_options
place=("--zone=$zone" --quiet)
delete=(gcloud compute tpus tpu-vm delete "$name" "${place[@]}")
if ((queued)); then
  delete=(gcloud compute tpus queued-resources delete "$name" --force "${place[@]}")
fi
# gone: the slice that had the run is no more; ours: this launcher created the slice, now or before
answer="" state="" request="" found_type="" found_by="" slice_exists=0 gone=0 ours=0
archive=${TMPDIR:-/tmp}/genenv_jax-$name.tar.gz
scratch=$(mktemp -d)
exec 3>&1 </dev/null # ssh would read what is typed meanwhile
trap finish EXIT
trap interrupted INT TERM HUP
if ((dry_run)); then
  say "dry run: nothing below is executed; a new slice and a run that ends well are assumed"
fi
if [[ -n $(git -C "$root" status --porcelain) ]]; then
  say "warning: uncommitted changes are not copied; the workers get HEAD," \
    "$(git -C "$root" rev-parse --short HEAD)"
fi
for ((tries = 1; ; tries++)); do
  code=0
  attempt || code=$?
  if ((code == 0)); then break; fi
  ((tries <= retries)) || exit "$code"
  say "retry $tries of $retries, in the same workdir"
  sleep $((8 * poll_seconds))
done
if ((run_status != 0)); then
  say "the run failed with exit code $run_status; the ends of the logs of all workers:"
  printf '%s\n' "$answer" >&2
  on_workers all "$(worker tail 30)" || true
  if ((keep || !ours)); then on_workers all "$(worker stop)" || true; fi
fi
say "the workdir is gs://$bucket/runs/$run"
exit "$run_status"
