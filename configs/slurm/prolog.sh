#!/bin/bash
# Prolog of slurmd: a directory of the job for its storage tier (`tiers: { storage: { path: /local/tierfeed } }`).
#
# For nodes that one job has alone (--exclusive). Site: Prolog=/etc/slurm/prolog.sh and PrologFlags=Alloc in
# slurm.conf. It never fails, as that would drain the node.
local_disk=${TIERFEED_LOCAL_DISK:-/local/tierfeed}

install -d -m 700 -o "$SLURM_JOB_UID" "$local_disk"
exit 0
