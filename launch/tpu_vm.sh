#!/usr/bin/env bash
# A run on a Cloud TPU VM slice, from creating the slice to deleting it.  See --help.
set -euo pipefail

if ((BASH_VERSINFO[0] < 4)); then
  echo "tpu_vm: this is bash $BASH_VERSION; expected 4 or newer" >&2
  exit 2
fi

usage() {
  cat <<'USAGE'
usage: launch/tpu_vm.sh [run] --name=NAME --accelerator_type=TYPE --zone=ZONE [OPTION…] -- ARG…
       launch/tpu_vm.sh fetch|delete --name=NAME --accelerator_type=TYPE --zone=ZONE [OPTION…]

run      creates the slice, or takes the one of that name; copies HEAD of this repository to every worker
         and installs it; starts `python -m genenv_jax.main --workdir=… ARG…` on all of them, detached;
         shows the log of worker 0; fetches the workdir; deletes the slice, also one that existed before
         or whose run failed.  Called again while the run goes on, or has ended unseen, it follows that
         run.
fetch    fetches the workdir of a run that is over
delete   deletes the slice

A slice of several hosts needs a workdir that all of them see (--bucket or --shared_dir) and
--distributed=auto among ARG.  Programs run in the repository, so the bucket is ../bucket for them:
--config.model.path=../bucket/models/Qwen2.5-7B-Instruct.

slice
  --name=NAME              of the slice
  --accelerator_type=TYPE  v5litepod-16, v6e-8, v5p-8, v4-8, …
  --zone=ZONE              europe-west4-b, …
  --project=PROJECT        default: that of gcloud's configuration
  --runtime_version=V      default: by generation
  --spot                   cheaper, and may be taken away at any time (see --retries)
  --queued                 wait in line for it, as a queued resource
  --create_flag=FLAG       handed to gcloud as it is, such as --create_flag=--reserved; repeatable
  --ssh_flag=FLAG          likewise for ssh and scp, such as --ssh_flag=--internal-ip; repeatable
run
  --run=RUN                name of the run and of its workdir (default: NAME)
  --bucket=gs://B[/PATH]   the workdir is gs://B/PATH/RUN, mounted on every worker.  A bucket with a
                           hierarchical namespace in the slice's region is the fast kind.
  --shared_dir=DIR         the workdir is DIR/RUN, DIR being mounted on every worker already
  --data_dir=DIR           a local directory to copy to every worker as $GENENV_DATA
  --env_file=FILE          lines KEY=value (taken as they are, no quotes) for the program's environment,
                           such as HF_TOKEN=…; never shown, and deleted on a worker once it is read
  --retries=N              how often to create the slice again and continue in the same workdir where
                           the slice was taken away or could not be had (default 0)
afterwards
  --local_dir=DIR          where the workdir is fetched to (default: runs/RUN); its subdirectory launch/
                           holds the source that was sent and the log
  --fetch=all|records|none records: without checkpoints/, agent/ and simulator/ (default: all)
  --keep                   do not delete the slice (nor is it where its disk has the only workdir and
                           that could not be fetched)
  --delete_on_interrupt    delete it on Ctrl-C too; without this the run goes on and so does its cost
waiting
  --ready_timeout=SECONDS  for the slice (default 3600)
  --poll_seconds=SECONDS   between two looks at it (default 15)
  --retry_seconds=SECONDS  before a retry (default 120)

  --dry_run                print every command, in a form to paste, and run none

Exit code: the run's own; 2 for bad options, 75 where the slice or the run was lost more often than
--retries allows, 130 after Ctrl-C, 1 for any other failure of the launch.
USAGE
}

# ---- speaking -------------------------------------------------------------------------------------

say() {
  if ((dry_run)); then
    printf '\n# %s\n' "$*"
  else
    printf 'tpu_vm: %s\n' "$*" >&2
  fi
}

refuse() {
  printf 'tpu_vm: %s\n' "$*" >&2
  exit 2
}

give_up() {
  printf 'tpu_vm: %s\n' "$*" >&2
  exit 1
}

# Notes why an attempt came to nothing, and what the exit code is where there is no other.
blame() {
  problem_code=$1
  problem=${*:2}
}

# A command as a line to paste, in `spelled`.  Single quotes where they do: %q puts a backslash before
# every blank.
spell() {
  local word
  spelled=""
  for word in "$@"; do
    if [[ $word == *[![:print:]]* ]]; then
      printf -v word '%q' "$word"
    elif [[ ! $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then
      word="'${word//\'/"'\\''"}'"
    fi
    spelled+="${spelled:+ }$word"
  done
}

# Runs a command, or prints it.
act() {
  if ((dry_run)); then
    spell "$@"
    echo "$spelled"
  else
    "$@"
  fi
}

# Runs a command for what it prints, into `answer`; a dry run takes the first argument for that.
ask() {
  local assumed=$1
  shift
  if ((dry_run)); then
    spell "$@"
    echo "$spelled"
    answer=$assumed
  else
    answer=$("$@" 2>"$scratch/errors")
  fi
}

# ---- what was asked for ---------------------------------------------------------------------------

name="" accelerator_type="" zone="" project="" runtime_version="" run="" bucket="" shared_dir=""
data_dir="" env_file="" local_dir="" fetch=all
spot=0 queued=0 keep=0 delete_on_interrupt=0 dry_run=0
retries=0 ready_timeout=3600 poll_seconds=15 retry_seconds=120
create_flags=() ssh_flags=() program_arguments=()

read_options() {
  local option value
  command=run
  case ${1:-} in
    run | fetch | delete)
      command=$1
      shift
      ;;
  esac
  while (($#)); do
    option=$1
    value=${option#*=}
    shift
    case $option in
      --help | -h)
        usage
        exit 0
        ;;
      --spot) spot=1 ;;
      --queued) queued=1 ;;
      --keep) keep=1 ;;
      --delete_on_interrupt) delete_on_interrupt=1 ;;
      --dry_run) dry_run=1 ;;
      --create_flag=*) create_flags+=("$value") ;;
      --ssh_flag=*) ssh_flags+=("$value") ;;
      --name=* | --accelerator_type=* | --zone=* | --project=* | --runtime_version=* | --run=* | \
        --bucket=* | --shared_dir=* | --data_dir=* | --env_file=* | --local_dir=* | --fetch=* | \
        --retries=* | --ready_timeout=* | --poll_seconds=* | --retry_seconds=*)
        [[ -n $value ]] || refuse "${option} is empty; leave it out or give it a value"
        option=${option%%=*}
        printf -v "${option#--}" '%s' "$value"
        ;;
      --)
        program_arguments=("$@")
        break
        ;;
      *) refuse "unknown option '$option'; options are --key=value (see --help), and what the" \
        "program gets comes after --" ;;
    esac
  done
}

# Says what is wrong with an option's value.  Arguments: option, pattern, what was expected.
match() {
  local option=$1 value=${!1}
  if [[ -z $value ]]; then
    refuse "--$option is missing; expected $3"
  elif [[ ! $value =~ ^($2)$ ]]; then
    refuse "--$option=$value: expected $3"
  fi
}

# Sets `hosts`, the number of workers, and the default of `runtime_version`.
#   chips and VMs: https://cloud.google.com/tpu/docs/v5e, v6e (the number counts chips; 1, 4 and 8 are one
#     VM, larger slices have 4 chips a VM: v5litepod-16 is 4 workers), v5p, v4 (the number counts
#     TensorCores, two a chip, and a VM has 4 chips: v5p-16 is 2 workers)
#   versions: https://cloud.google.com/tpu/docs/runtimes
understand_slice() {
  local generation=${accelerator_type%-*} size=${accelerator_type##*-} version
  match accelerator_type '(v5litepod|v6e|v5p|v4)-[1-9][0-9]{0,4}' \
    "a Cloud TPU type such as v5litepod-16 (v5e), v6e-8, v5p-8 or v4-8"
  case $generation in
    v5litepod | v6e)
      [[ " 1 4 8 16 32 64 128 256 " == *" $size "* ]] \
        || refuse "--accelerator_type=$accelerator_type: expected 1, 4, 8, 16, 32, 64, 128 or 256 chips"
      hosts=$((size <= 8 ? 1 : size / 4))
      ;;
    v5p | v4)
      ((size % 8 == 0)) \
        || refuse "--accelerator_type=$accelerator_type: expected a multiple of 8 TensorCores (4 chips)"
      hosts=$((size / 8))
      ;;
  esac
  case $generation in
    v5litepod) version=v2-alpha-tpuv5-lite ;;
    v6e) version=v2-alpha-tpuv6e ;;
    v5p) version=v2-alpha-tpuv5 ;;
    v4) version=tpu-ubuntu2204-base ;;
  esac
  : "${runtime_version:=$version}"
}

check_options() {
  local number option
  match name '[a-z]([-a-z0-9]{0,61}[a-z0-9])?' \
    "a lower-case letter, then letters, digits and hyphens (at most 63, the last no hyphen)"
  match zone '[a-z]+(-[a-z0-9]+)+' "a zone such as europe-west4-b"
  understand_slice
  match runtime_version '[a-z0-9][-a-z0-9._]*' "a TPU software version such as v2-alpha-tpuv6e"
  if [[ -n $project ]]; then
    match project '[a-z][-a-z0-9.:]{4,}[a-z0-9]' "the id of a Google Cloud project"
  fi
  : "${run:=$name}"
  match run '[A-Za-z0-9][A-Za-z0-9._-]*' "letters, digits, points, hyphens and underscores"
  match fetch 'all|records|none' "all, records or none"
  for number in retries ready_timeout poll_seconds retry_seconds; do
    match "$number" '[0-9]{1,8}' "a whole number, at least 0"
  done
  if [[ -n $bucket && -n $shared_dir ]]; then
    refuse "--bucket and --shared_dir both say where the workdir is; expected one of them"
  elif [[ -n $bucket ]]; then
    bucket=${bucket%/}
    match bucket 'gs://[a-z0-9][-a-z0-9._]+[a-z0-9](/[A-Za-z0-9._-]+)*' \
      "gs:// with the name of a bucket and, if you like, a path of letters, digits, ., - and _"
    [[ /$bucket/ != */../* && /$bucket/ != */./* ]] || refuse "--bucket=$bucket: expected no . or .. in it"
  elif [[ -n $shared_dir ]]; then
    match shared_dir '(/[A-Za-z0-9._-]+)+/?' "an absolute path of letters, digits, ., - and _"
    shared_dir=${shared_dir%/}
  fi
  : "${local_dir:=runs/$run}"
  for option in local_dir env_file; do # gcloud takes what is before a colon for a host
    if [[ ${!option} == -* || ${!option} == *:* ]]; then
      refuse "--$option=${!option}: expected a path with no colon that does not begin with a hyphen"
    fi
  done
}

# What only a run needs.
check_run() {
  local argument config="" distributed=0
  for argument in ${program_arguments[@]+"${program_arguments[@]}"}; do
    case $argument in
      --config=*) config=${argument#*=} ;;
      --distributed | --distributed=*) distributed=1 ;;
      --workdir | --workdir=*) refuse "$argument: the workdir is set by --bucket, --shared_dir and --run" ;;
    esac
  done
  [[ -n $config ]] || refuse "there is no --config=… after --; expected what genenv_jax.main is to get"
  if ((hosts > 1)) && [[ -z $bucket && -z $shared_dir ]]; then
    refuse "$accelerator_type has $hosts hosts, each with a disk of its own, and all of them write to one" \
      "workdir; expected --bucket=gs://… or --shared_dir=… (a directory that every worker has mounted)"
  fi
  if ((hosts > 1 && !distributed)); then
    refuse "$accelerator_type has $hosts hosts, which would each run by themselves; expected" \
      "--distributed=auto after --"
  fi
  if [[ -z $bucket && -z $shared_dir ]]; then
    ((retries == 0)) || refuse "--retries=$retries without --bucket or --shared_dir: the workdir is on the" \
      "slice's own disk and goes with it, so there is nothing to continue"
    [[ $fetch != none || $keep == 1 ]] || refuse "--fetch=none without --bucket, --shared_dir or --keep:" \
      "the workdir would be deleted with the slice"
  fi
  if [[ -n $data_dir && ! -d $data_dir ]]; then
    refuse "--data_dir=$data_dir: expected a directory"
  fi
  if [[ -n $env_file ]]; then
    [[ -f $env_file && -r $env_file ]] || refuse "--env_file=$env_file: expected a file that can be read"
    # The number of the line, and not the line: it may hold a token.
    argument=$(grep -nvE '^[[:space:]]*(#.*)?$|^[A-Za-z_][A-Za-z0-9_]*=' "$env_file" | head -n 1 || true)
    [[ -z $argument ]] || refuse "--env_file=$env_file: line ${argument%%:*} is not KEY=value"
  fi
  git -C "$root" rev-parse --quiet --verify HEAD >/dev/null \
    || refuse "$root is no git repository with a commit; expected one, since HEAD is what the workers get"
  config=${config%%:*}
  if [[ $config != /* && $config != ../* ]] && ! git -C "$root" cat-file -e "HEAD:$config" 2>/dev/null; then
    refuse "--config=$config is not in HEAD, which is what the workers get; expected a committed file"
  fi
  if ((!dry_run)) && ! command -v gcloud >/dev/null; then
    give_up "there is no gcloud on PATH; expected the Google Cloud CLI (https://cloud.google.com/sdk)"
  fi
}

# Where the workdir is on a worker, relative to ~/genenv_jax, and in the bucket.
place_workdir() {
  local path=${bucket#gs://}
  bucket_name=${path%%/*}
  workdir=workdir/$run
  if [[ -n $bucket ]]; then
    path=${path#"$bucket_name"}
    workdir=bucket$path/$run
  elif [[ -n $shared_dir ]]; then
    workdir=$shared_dir/$run
  fi
}

# ---- the slice ------------------------------------------------------------------------------------

# Looks at the slice: sets `state`, a state of the API, ABSENT, or UNKNOWN where gcloud cannot tell, and
# `found_type`.  Argument: what a dry run assumes.
look() {
  if ask "$1" gcloud compute tpus tpu-vm describe "$name" "${place[@]}" \
    '--format=value(state,acceleratorType)'; then
    read -r state found_type <<<"$answer" || true
    : "${state:=UNKNOWN}"
    if [[ $state == ABSENT ]]; then found_type=""; fi
  elif grep -qiE 'NOT_FOUND|not found' "$scratch/errors"; then
    state=ABSENT
  else
    state=UNKNOWN
    cat "$scratch/errors" >&2
  fi
}

create_slice() {
  local arguments=("${place[@]}" --accelerator-type="$accelerator_type")
  if ((spot)); then
    arguments+=(--spot)
  fi
  arguments+=(${create_flags[@]+"${create_flags[@]}"})
  say "create $accelerator_type ($hosts $( ((hosts == 1)) && echo host || echo hosts))"
  slice_exists=1 # from here on it may cost, also where the command fails or is interrupted
  if ((queued)); then
    act gcloud compute tpus queued-resources create "$name" --node-id="$name" \
      --runtime-version="$runtime_version" "${arguments[@]}" && return
  else
    act gcloud compute tpus tpu-vm create "$name" --version="$runtime_version" "${arguments[@]}" && return
    look ABSENT
    if [[ $state == ABSENT ]]; then slice_exists=0; fi
  fi
  blame 1 "slice $name could not be created (gcloud says why above)"
  return 1
}

delete_slice() {
  say "delete the slice"
  if ((queued)); then
    act gcloud compute tpus queued-resources delete "$name" --force "${place[@]}" || return
  else
    act gcloud compute tpus tpu-vm delete "$name" "${place[@]}" || return
  fi
  slice_exists=0
}

await_ready() {
  local deadline=$((SECONDS + ready_timeout))
  while :; do
    look "READY $accelerator_type"
    case $state in
      READY) return 0 ;;
      PREEMPTED | TERMINATED | STOPPED | STOPPING | DELETING | FAILED | HIDDEN | HIDING)
        blame 75 "slice $name is $state and will not become READY"
        return 1
        ;;
      ABSENT)
        if ((!queued)); then
          blame 75 "slice $name is gone"
          return 1
        fi
        if ask ACTIVE gcloud compute tpus queued-resources describe "$name" "${place[@]}" \
          '--format=value(state.state)'; then
          case $answer in
            FAILED | SUSPENDED | SUSPENDING | DELETING)
              blame 75 "the queued request for slice $name is $answer"
              return 1
              ;;
          esac
        fi
        ;;
    esac
    if ((SECONDS >= deadline)); then
      blame 1 "slice $name is $state, and not READY after $ready_timeout s (--ready_timeout)"
      return 1
    fi
    sleep "$poll_seconds"
  done
}

# Sees to it that the slice is there and ready.
ensure_slice() {
  say "is there a slice $name?"
  look ABSENT
  case $state in
    UNKNOWN) give_up "gcloud cannot say whether slice $name exists (see above)" ;;
    ABSENT) create_slice || return ;;
    PREEMPTED | TERMINATED | FAILED)
      say "slice $name exists and is $state; it is made anew"
      delete_slice || give_up "slice $name cannot be deleted"
      create_slice || return
      ;;
    READY | CREATING | STARTING | RESTARTING | REIMAGING | REPAIRING)
      if [[ $found_type != "$accelerator_type" ]]; then
        give_up "slice $name exists and is a ${found_type:-slice of unknown type};" \
          "expected $accelerator_type, or another --name"
      fi
      slice_exists=1 on_disk=1
      say "slice $name exists and is $state; it is used"
      ;;
    *) give_up "slice $name exists and is $state; expected READY (start it, or delete it)" ;;
  esac
  await_ready
}

# ---- the workers ----------------------------------------------------------------------------------

worker_script=genenv_jax/source/launch/tpu_vm_worker.sh

# The shell command of a worker's part.
worker() {
  local words
  printf -v words ' %q' "$@"
  printf 'bash %s%s' "$worker_script" "$words"
}

# The command line that runs a shell command on a worker, or on "all" at once, in `ssh_command`.
# A lost connection is noticed after two minutes.
compose_ssh() {
  ssh_command=(gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker="$1"
    '--ssh-flag=-o ServerAliveInterval=30' '--ssh-flag=-o ServerAliveCountMax=4'
    ${ssh_flags[@]+"${ssh_flags[@]}"} --command="$2")
}

on_workers() {
  compose_ssh "$@"
  act "${ssh_command[@]}"
}

send() {
  act gcloud compute tpus tpu-vm scp "$1" "$name:$2" "${place[@]}" --worker=all \
    ${ssh_flags[@]+"${ssh_flags[@]}"}
}

# What the run is like on the workers: sets `reports`, a line "HOST STATE RUN" for each that answers.
# What counts is what is printed: the exit code of ssh to several workers is not that of any of them.
# Argument: the state that a dry run assumes.
poll() {
  local host assumed="" command
  for ((host = 0; host < hosts; host++)); do
    assumed+="tpu_vm_worker: worker-$host $1 $run"$'\n'
  done
  command="if test -e $worker_script; then $(worker status)"
  command+="; else echo \"tpu_vm_worker: \$HOSTNAME none -\"; fi"
  compose_ssh all "$command"
  ask "$assumed" "${ssh_command[@]}" || true
  mapfile -t reports < <(sed -n 's/^tpu_vm_worker: \([^ ]* [^ ]* [^ ]*\)$/\1/p' <<<"$answer" | sort -V)
}

# The first contact: a VM that is READY may need minutes until it takes connections.
await_workers() {
  local deadline=$((SECONDS + 300))
  say "wait until $( ((hosts == 1)) && echo "the worker answers" || echo "all $hosts workers answer")"
  while :; do
    poll none
    if ((${#reports[@]} == hosts)); then return 0; fi
    if ((SECONDS >= deadline)); then
      cat "$scratch/errors" >&2
      blame 1 "${#reports[@]} of the $hosts workers of $name answer; expected all"
      return 1
    fi
    sleep "$poll_seconds"
  done
}

# Whether this very run is on all workers, going on or ended unseen; another one that goes on is an error.
is_there() {
  local report host run_state run_name count=0
  for report in "${reports[@]}"; do
    read -r host run_state run_name <<<"$report"
    if [[ $run_state == running && $run_name != "$run" ]]; then
      keep=1
      give_up "slice $name is busy with run $run_name (on $host); expected that run, or another --name"
    elif [[ $run_name == "$run" && $run_state =~ ^(running|exit:.*)$ ]]; then
      count=$((count + 1))
    fi
  done
  ((count == hosts))
}

# Ends what is left of a run on workers that have been installed.
forget() {
  on_workers all "if test -e $worker_script; then $(worker forget); fi"
}

pack() {
  act mkdir -p "$local_dir/launch" || return
  act "${git[@]}" archive --format=tar.gz --output="$archive" HEAD || return
  if [[ -n $data_dir ]]; then
    act tar -C "$data_dir" -czf "$local_dir/launch/data.tar.gz" . || return
  fi
}

install() {
  local unpack="mkdir -p genenv_jax && cd genenv_jax && rm -rf source data && mkdir source"
  unpack+=" && tar -xzf ../genenv_jax-source.tar.gz -C source"
  say "copy the repository to every worker and install it"
  pack || return
  send "$archive" genenv_jax-source.tar.gz || return
  if [[ -n $data_dir ]]; then
    send "$local_dir/launch/data.tar.gz" genenv_jax-data.tar.gz || return
    unpack+=" && mkdir data && tar -xzf ../genenv_jax-data.tar.gz -C data"
  fi
  on_workers all "$unpack" || return
  on_workers all "$(worker install)" || return
  if [[ -n $bucket ]]; then
    say "mount gs://$bucket_name on every worker"
    on_workers all "$(worker mount "$bucket_name")" || return
  fi
}

start() {
  if [[ -n $env_file ]]; then
    say "copy the environment, readable by its owner only"
    on_workers all "install -m 600 /dev/null genenv_jax/run.env" || return
    send "$env_file" genenv_jax/run.env || return
  fi
  if ((gone)); then # else the run would be refused: it cannot know that the hosts in its lock are no more
    local lock
    printf -v lock %q "$workdir/run.lock"
    on_workers 0 "cd genenv_jax && rm -f $lock" || return
    gone=0
  fi
  on_disk=1
  say "start the run on every worker"
  on_workers all "$(worker start "$run" "$workdir" "${program_arguments[@]}")"
}

# Shows the log of worker 0 from where it was left.  Fails where it is not at its end: the connection is
# lost, or it is time to look at the slice and the other workers.
show_log() {
  local seen=0 seconds=$((4 * poll_seconds + 1))
  if ((dry_run)); then
    compose_ssh 0 "$(worker follow 0 "$seconds")"
    spell "${ssh_command[@]}"
    printf '%s | ' "$spelled"
    act tee -a "$log"
  else
    seen=$(($(wc -c <"$log"))) # some systems pad it with blanks
    compose_ssh 0 "$(worker follow "$seen" "$seconds")"
    "${ssh_command[@]}" 2>"$scratch/errors" | tee -a "$log"
  fi
}

# Judges `reports`: sets `outcome` to going, ended (then `run_status` is the run's exit code) or lost.
judge() {
  local report host run_state run_name code still=0
  outcome=ended run_status=0
  for report in "${reports[@]}"; do
    read -r host run_state run_name <<<"$report"
    if [[ $run_state == lost || $run_state == none || $run_name != "$run" ]]; then
      outcome=lost
      blame 75 "the run on $host is lost ($run_state), as after a restart of the VM"
      return
    elif [[ $run_state == running ]]; then
      still=1
    else
      # Where one process fails, the others end by a signal (128 and above), so its code is the cause.
      code=${run_state#exit:}
      if ((code != 0)) && { ((run_status == 0)) || ((run_status >= 128 && code < 128)); }; then
        run_status=$code
      fi
    fi
  done
  if ((still && run_status == 0)); then
    outcome=going
  elif ((still && !late)); then # once, so that the others end by themselves and the cause is among them
    late=1
    outcome=going
  fi
}

# Waits for the end of the run.
await_end() {
  local misses=0 most=40 shown
  say "follow worker 0 until the run ends"
  late=0
  if ((!dry_run)); then : >"$log"; fi
  while :; do
    shown=1
    show_log || shown=0
    look "READY $accelerator_type"
    case $state in
      READY)
        poll exit:0
        if ((${#reports[@]} == hosts)); then
          misses=0
          judge
          case $outcome in
            ended)
              for ((misses = 0; misses < 5 && !shown; misses++)); do
                sleep "$poll_seconds"
                if show_log; then shown=1; fi
              done
              return 0
              ;;
            lost) return 1 ;;
          esac
        else
          misses=$((misses + 1))
        fi
        ;;
      UNKNOWN | REPAIRING | RESTARTING | REIMAGING) misses=$((misses + 1)) ;;
      *)
        gone=1
        blame 75 "slice $name was taken away during the run: it is $state"
        return 1
        ;;
    esac
    if ((misses >= most)); then
      keep=1
      cat "$scratch/errors" >&2
      give_up "the workers of $name have not answered $most times; the run may be going on." \
        "The same command again follows it"
    fi
    sleep "$poll_seconds"
  done
}

# One slice, one start.  Fails, and says why in `problem`, where another attempt may help.
attempt() {
  outcome=""
  ensure_slice || return
  await_workers || return
  if is_there; then
    say "run $run is there already; it is followed"
  elif ! { if [[ ${reports[*]} == *\ running\ * ]]; then forget; fi && install && start; }; then
    look "READY $accelerator_type"
    if [[ $state == READY ]]; then
      give_up "the run could not be installed and started (see above)"
    fi
    blame 75 "slice $name was lost before the run started: it is $state"
    return 1
  fi
  await_end
}

# ---- the end --------------------------------------------------------------------------------------

fetch_workdir() {
  local heavy=(checkpoints agent simulator) arguments=() directory
  say "fetch the workdir to $local_dir"
  act mkdir -p "$local_dir" || return
  if [[ -n $bucket ]]; then
    if [[ $fetch == records ]]; then
      arguments+=("--exclude=^(checkpoints|agent|simulator)/")
    fi
    act gcloud storage rsync --recursive "$bucket/$run" "$local_dir" \
      ${arguments[@]+"${arguments[@]}"} ${project:+"--project=$project"}
    return
  fi
  if [[ $fetch == records ]]; then
    for directory in "${heavy[@]}"; do
      arguments+=("--exclude=./$directory")
    done
  fi
  directory=$workdir
  [[ $directory == /* ]] || directory=genenv_jax/$directory
  spell tar -C "$directory" ${arguments[@]+"${arguments[@]}"} -cf - .
  compose_ssh 0 "$spelled"
  if ((dry_run)); then
    spell "${ssh_command[@]}"
    printf '%s | ' "$spelled"
    act tar -xf - -C "$local_dir"
  else
    "${ssh_command[@]}" | tar -xf - -C "$local_dir"
  fi
}

report_failure() {
  local report
  for report in "${reports[@]}"; do
    say "worker $report"
  done
  on_workers all "$(worker stop)" || true
  say "the ends of the logs of all workers:"
  on_workers all "$(worker tail 30)" || true
}

# On every way out.
finish() {
  local status=$? words again
  trap - EXIT INT TERM HUP
  words=("$0" delete "--name=$name" "--accelerator_type=$accelerator_type" "--zone=$zone")
  if [[ -n $project ]]; then words+=("--project=$project"); fi
  if ((queued)); then words+=(--queued); fi
  spell "${words[@]}"
  again=$spelled
  if ((on_disk && slice_exists && !keep)) && [[ -z $bucket && -z $shared_dir && $state == READY ]]; then
    keep=1
    say "what is in the workdir is on the slice's own disk only, so the slice is not deleted"
  fi
  if ((slice_exists && !keep)); then
    delete_slice || {
      printf 'tpu_vm: SLICE %s STILL EXISTS AND COSTS MONEY; delete it:\n  %s\n' "$name" \
        "$again" >&2
      if ((status == 0)); then status=1; fi
    }
  elif ((slice_exists && !dry_run)); then
    say "slice $name is kept and costs until it is deleted: $again"
  fi
  rm -rf "$scratch"
  exit "$status"
}

interrupted() {
  say "interrupted"
  if ((delete_on_interrupt)); then
    on_disk=0 # asked for
  elif ((slice_exists)); then
    keep=1
    say "a run that was started goes on; the same command again follows it"
  fi
  exit 130
}

run_all() {
  local tries=0
  if [[ -n $(git -C "$root" status --porcelain) ]]; then
    say "warning: uncommitted changes are not copied; the workers get HEAD," \
      "$(git -C "$root" rev-parse --short HEAD)"
  fi
  if ((!dry_run)); then mkdir -p "$local_dir/launch"; fi
  while ! attempt; do
    if ((tries >= retries)); then
      printf 'tpu_vm: %s\n' "$problem" >&2
      run_status=$problem_code
      break
    fi
    tries=$((tries + 1))
    say "$problem; retry $tries of $retries in $retry_seconds s, in the same workdir"
    if [[ $state == READY ]]; then
      forget || true
    fi
    sleep "$retry_seconds"
  done
  if [[ $outcome == ended ]]; then
    if ((run_status != 0)); then
      say "the run failed with exit code $run_status"
      report_failure
    elif ((!dry_run)); then
      say "the run has ended well"
    fi
  fi
  # Where there is anything to fetch: the bucket outlives the slice, a disk does not.
  if ((on_disk)) && [[ $fetch != none && (-n $bucket || $state == READY) ]]; then
    if fetch_workdir; then
      on_disk=0
    else
      say "the workdir could not be fetched"
      if ((run_status == 0)); then run_status=1; fi
    fi
  fi
  # So that the same command starts it once more, and does not find it ended.
  if ((keep)) && [[ $outcome == ended ]]; then
    forget || true
  fi
  exit "$run_status"
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
read_options "$@"
check_options
place_workdir
if [[ $command == run ]]; then check_run; fi
# Paths as short as they can be where one stands in the repository.
git=(git)
if [[ $PWD != "$root" ]]; then
  git+=(-C "$root")
  [[ $local_dir == /* ]] || local_dir=$PWD/$local_dir
fi
place=("--zone=$zone" ${project:+"--project=$project"} --quiet)
archive=$local_dir/launch/source.tar.gz
log=$local_dir/launch/worker-0.log
reports=() answer="" state="" found_type="" problem="" problem_code=1 run_status=0 slice_exists=0
# on_disk: the slice's disk may have what was not fetched; late: a failed run was given time to end
on_disk=0 late=0 gone=0 outcome=""
if ((dry_run)); then
  scratch=/dev/null/none
  say "dry run: nothing below is executed; a new slice and a run that ends well are assumed"
else
  exec </dev/null # ssh would take what is typed meanwhile
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
case $command in
  run)
    trap finish EXIT
    trap interrupted INT TERM HUP
    run_all
    ;;
  fetch) fetch_workdir || give_up "the workdir could not be fetched (see above)" ;;
  delete) delete_slice || give_up "slice $name could not be deleted (see above)" ;;
esac
