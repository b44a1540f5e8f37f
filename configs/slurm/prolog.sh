#!/bin/bash
# Prolog of slurmd: a directory of the job for its storage tier (`tiers: { storage: { path: ... } }`).
#
# Site: Prolog=/etc/slurm/prolog.sh and PrologFlags=Alloc in slurm.conf. It never fails, as that would drain the
# node.
local_disk=${TIERFEED_LOCAL_DISK:-/local/tierfeed}

mkdir -p "$local_disk" && chmod 755 "$local_disk"
install -d -m 700 -o "$SLURM_JOB_UID" "$local_disk/$SLURM_JOB_ID"
exit 0
