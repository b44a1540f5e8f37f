#!/usr/bin/env bash
# A private Slurm on this host: a munged, a slurmctld, and a slurmd for each node n1, n2 and so on.
#
# usage: slurm.sh up DIR NODES [FILE]     then set SLURM_CONF=DIR/slurm.conf; FILE has more of its lines
#        slurm.sh down DIR
#
# All files are below DIR and all ports are free ones, so that several may run beside each other and
# beside a Slurm of the host. Runs as root, as slurmd starts the tasks of other users. DIR must be short:
# it holds a socket.
set -euo pipefail

fail() {
  printf 'slurm.sh: error: %s\n' "$1" >&2
  exit 1
}

# So many free ports, one on each line.
free_ports() {
  python3 - "$1" <<'END'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print("\n".join(str(it.getsockname()[1]) for it in held))
END
}

write_configuration() {
  local dir=$1 nodes=$2 more=$3 host ports node
  host=$(hostname -s)
  mapfile -t ports < <(free_ports $((nodes + 1)))
  cat >"$dir/slurm.conf" <<END
ClusterName=private
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/sock
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
# Else every one begins with 1, and finds what the jobs of the last one left.
FirstJobId=$((RANDOM * 1000 + RANDOM % 1000 + 1))
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SlurmdParameters=config_overrides
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
  for node in $(seq "$nodes"); do
    printf 'NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=4 RealMemory=2000\n' \
      "$node" "$host" "${ports[node]}" >>"$dir/slurm.conf"
  done
  cat "$more" >>"$dir/slurm.conf"
}

up() {
  local dir=$1 nodes=$2 more=$3 node
  [ "$(id -u)" -eq 0 ] || fail "slurmd needs root"
  mkdir -p "$dir"/{state,spool,log,munge}
  # Other users reach its socket; the key is its owner's alone.
  chmod 711 "$dir/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$dir/munge/key")
  write_configuration "$dir" "$nodes" "$more"
  export SLURM_CONF="$dir/slurm.conf"
  /usr/sbin/munged --force --key-file="$dir/munge/key" --socket="$dir/munge/sock" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  /usr/sbin/slurmctld -f "$SLURM_CONF"
  for node in $(seq "$nodes"); do
    /usr/sbin/slurmd -N "n$node" -f "$SLURM_CONF"
  done
  for _ in $(seq 300); do
    [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = "$nodes" ] && return
    sleep 0.1
  done
  sinfo >&2 || true
  tail -n 20 "$dir"/log/*.log >&2
  fail "the nodes are not idle after 30 s"
}

# Returns when all have ended: until then they write below DIR.
down() {
  local dir=$1 file pids=()
  SLURM_CONF="$dir/slurm.conf" scancel --quiet --state=RUNNING 2>/dev/null || true
  # The controller first: it would take nodes that end for nodes that fail.
  for file in "$dir"/slurmctld.pid "$dir"/slurmd.*.pid "$dir/munge/pid"; do
    [ ! -s "$file" ] || pids+=("$(cat "$file")")
  done
  kill "${pids[@]}" 2>/dev/null || true
  for _ in $(seq 100); do
    kill -0 "${pids[@]}" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "${pids[@]}" 2>/dev/null || true
}

case "${1:-}" in
  up) up "${2:?DIR is missing}" "${3:?NODES is missing}" "${4:-/dev/null}" ;;
  down) down "${2:?DIR is missing}" ;;
  *) fail "usage: slurm.sh up DIR NODES [FILE] | slurm.sh down DIR" ;;
esac
