#!/usr/bin/env bash
# with_ranks.sh N COMMAND...: runs COMMAND on N ranks of this machine, as any user, with any number of cores. Uses the
# mpirun flags of `ashlar launch`, which itself starts only ashlar; a test compares the flags. The ranks inherit the
# environment. Exit code: the first one of a rank that is not 0.
set -euo pipefail
[ $# -ge 2 ] || { echo 'usage: with_ranks.sh N COMMAND...' >&2; exit 2; }
ranks=$1
shift
command -v mpirun >/dev/null || { echo 'with_ranks.sh: mpirun is missing; install openmpi-bin' >&2; exit 2; }
version=$(mpirun --version </dev/null 2>/dev/null) || true
export HWLOC_COMPONENTS=${HWLOC_COMPONENTS--gl} # do not ask X displays for GPUs: 5 s each without a name server
case $version in
  *'Open MPI'*) ;;
  *) exec mpirun -n "$ranks" "$@" ;;
esac
flags=(
  --allow-run-as-root   # needed in containers, where the user is root
  --bind-to none        # otherwise each job binds its ranks to the same first cores
  --mca pml ob1         # ranks of one machine need no network fabric; searching for one takes 0.2 s
)
case $version in
  *'(Open MPI) '[1-4].*)
    flags+=(
      --oversubscribe                # allows more ranks than cores
      --mca plm isolated             # starts ranks on this machine only, without ssh
      --mca btl 'self,vader,tcp'     # vader: shared memory; tcp if it is unavailable
      --mca orte_abort_on_non_zero_status 1
    )
    ;;
  *)  # version 5 names these flags differently, and has no plm without ssh
    flags+=(--map-by :OVERSUBSCRIBE --mca btl 'self,sm,tcp' --prtemca prte_abort_on_non_zero_status 1) ;;
esac
exec mpirun "${flags[@]}" -np "$ranks" "$@"
