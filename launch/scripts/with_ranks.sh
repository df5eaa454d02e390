#!/usr/bin/env bash
# with_ranks.sh N COMMAND...: runs COMMAND on N ranks of this machine, as any user, with any number of cores.
# Starts any program with the flags of `ashlar launch`, which starts ashlar (a test compares them); the ranks inherit the
# environment. Exit code: the first that is not 0.
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: with_ranks.sh N COMMAND...' >&2; exit 2; }
ranks=$1
shift
command -v mpirun >/dev/null || { echo 'with_ranks.sh: mpirun is missing; install openmpi-bin' >&2; exit 2; }
version=$(mpirun --version </dev/null 2>/dev/null) || true
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS--gl} # asks no X display for GPUs: that takes 5 s each without a name server
case $version in
  *'Open MPI'*) ;;
  *) exec mpirun -n "$ranks" "$@" ;;
esac
flags=(
  --allow-run-as-root   # as in containers
  --bind-to none        # else each job binds its ranks to the same first cores
  --mca pml ob1         # ranks of one machine need no fabric: not looking for one saves 0.2 s a start
)
case $version in
  *'(Open MPI) '[1-4].*)
    flags+=(
      --oversubscribe                # more ranks than cores
      --mca plm isolated             # this machine only: needs no ssh
      --mca btl 'self,vader,tcp'     # vader: shared memory; tcp where there is none
      --mca orte_abort_on_non_zero_status 1
    )
    ;;
  *)  # version 5 has other names, and no plm without ssh
    flags+=(--map-by :OVERSUBSCRIBE --mca btl 'self,sm,tcp' --prtemca prte_abort_on_non_zero_status 1) ;;
esac
exec mpirun "${flags[@]}" -np "$ranks" "$@"
