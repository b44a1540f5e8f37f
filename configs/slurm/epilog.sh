#!/bin/bash
# Epilog of slurmd: removes what agents that were killed have left on the node.
#
# Site: Epilog=/etc/slurm/epilog.sh in slurm.conf. It never fails, as that would drain the node.
local_disk=${TIERFEED_LOCAL_DISK:-/local/tierfeed}
own=/tmp/tierfeed-$SLURM_JOB_UID

# RAM disks of the scratch tier: of `tierfeed run` in its run directory, of `tierfeed agent` below /tmp. One that
# lies in another is listed behind it, and goes first.
awk -v run="-slurm-$SLURM_JOB_ID." -v agent="$own/slurm-$SLURM_JOB_ID/" \
  '$1 == "tierfeed-scratch" && (index($2, run) || index($2, agent) == 1) { print $2 }' /proc/mounts |
  tac | while read -r ram_disk; do umount "$(printf '%b' "$ram_disk")"; done

# Only the directory that the prolog made for this job: another job of the node may work there by now.
job=$local_disk.job
if grep -qs "^$SLURM_JOB_ID " "$job"; then
  chown 0:0 "$local_disk"
  # A mount point stays, without its contents. If any of them stay, no other job gets the directory.
  rm -rf --one-file-system "${local_disk:?}"
  if [ ! -e "$local_disk" ] || [ -n "$(find "$local_disk" -maxdepth 0 -empty)" ]; then rm -f "$job"; fi
fi

# Everything in /tmp may be a link that a user has made, so the user removes it.
user=(setpriv --reuid "$SLURM_JOB_UID" --regid "${SLURM_JOB_GID:-$SLURM_JOB_UID}" --clear-groups)
[ -L "$own" ] || "${user[@]}" rm -rf --one-file-system "$own/slurm-$SLURM_JOB_ID"
exit 0
