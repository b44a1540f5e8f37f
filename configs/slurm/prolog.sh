#!/bin/bash
# Prolog of slurmd: a directory of the job for its storage tier (`tiers: { storage: { path: /local/tierfeed } }`).
#
# For nodes that one job has alone (--exclusive): of several jobs on a node, the first has it. Site:
# Prolog=/etc/slurm/prolog.sh and PrologFlags=Alloc in slurm.conf. It never fails, as that would drain the node.
local_disk=${TIERFEED_LOCAL_DISK:-/local/tierfeed}
job=$local_disk.job
boot=$(cat /proc/sys/kernel/random/boot_id)

mkdir -p "$(dirname "$local_disk")"
# Left by a job that ended with the node.
if [ -e "$job" ] && ! grep -q " $boot$" "$job"; then
  rm -rf --one-file-system "${local_disk:?}"
  rm -f "$job"
fi
# It may be there already, as a mount point is. What it contains stays, and then no job gets it.
[ -e "$local_disk" ] || [ -L "$local_disk" ] || mkdir -m 700 "$local_disk"
if [ ! -L "$local_disk" ] && [ -n "$(find "$local_disk" -maxdepth 0 -type d -empty)" ] &&
  (set -o noclobber && echo "$SLURM_JOB_ID $boot" >"$job"); then
  chmod 700 "$local_disk" && chown "$SLURM_JOB_UID" "$local_disk"
fi
exit 0
