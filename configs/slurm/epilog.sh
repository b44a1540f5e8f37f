#!/bin/bash
# Epilog of slurmd: removes what agents that were killed have left on the node.
#
# Site: Epilog=/etc/slurm/epilog.sh in slurm.conf. It never fails, as that would drain the node.
local_disk=${TIERFEED_LOCAL_DISK:-/local/tierfeed}
run_dirs=/tmp/tierfeed-$SLURM_JOB_UID/slurm-$SLURM_JOB_ID

# RAM disks of the scratch tier: of `tierfeed run` in its run directory, of `tierfeed agent` below /tmp.
awk -v run="-slurm-$SLURM_JOB_ID." -v agent="$run_dirs/" \
  '$1 == "tierfeed-scratch" && (index($2, run) || index($2, agent) == 1) { print $2 }' /proc/mounts |
  while read -r ram_disk; do umount "$ram_disk"; done
rm -rf --one-file-system "${local_disk:?}" "$run_dirs"
exit 0
