# Sourced: a run of pytest that tries once more, in the gate, what failed, and names it as flaky if it
# passes then.
# shellcheck shell=bash
#
# again COMMAND...
again() {
  local status=0
  "$@" --cache-clear || status=$?
  # 1: tests failed. Whatever else ended it has not run them all.
  if [ "$status" -ne 1 ] || [ -z "${CI:-}" ]; then
    return "$status"
  fi
  printf '\ntest: what failed, once more\n' >&2
  "$@" --last-failed --last-failed-no-failures none &&
    printf 'test: FLAKY: what failed above passed on the second try\n' >&2
}
export -f again
