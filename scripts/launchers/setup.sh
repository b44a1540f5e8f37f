#!/usr/bin/env bash
# Installs the launchers that tests run for real, where they are missing: Slurm, Open MPI and MPICH.
# None of their services is needed; tests start daemons of their own (slurm.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'launchers: %s\n' "$*" >&2; }

fail() {
  printf 'launchers: error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf 'launchers:        %s\n' "$line" >&2; done
  exit 1
}

# shellcheck source=scripts/packages.sh
source scripts/packages.sh

install_packages slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins openmpi-bin mpich
