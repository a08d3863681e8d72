# What the scripts of all packages do with their unit; scripts/maintainer-scripts puts it into each of them.
# A mistake in a configuration file, a busy port or a server that is away never fails a script: dpkg would leave the package
# half-configured, and apt everything after it. It is told instead.

# As Debian's own packages do it: enabled when it is new here, and never again after an administrator has disabled it.
# An older package kept no state of that: then what systemd says counts. usage: enable_unit VERSION-BEFORE
enable_unit() {
  state=/var/lib/systemd/deb-systemd-helper-enabled/$unit.dsh-also
  is_kept_disabled=no
  if [ -n "$1" ] && [ -x /usr/bin/systemctl ] && ! [ -e "$state" ] &&
    ! systemctl --quiet is-enabled "$unit" 2> /dev/null; then
    is_kept_disabled=yes
  fi
  # The removal masked it, so this is a new installation, although dpkg names the version of before.
  was_removed=no
  if [ -e "/var/lib/systemd/deb-systemd-helper-masked/$unit" ]; then was_removed=yes; fi
  deb-systemd-helper unmask "$unit" > /dev/null || true
  if [ "$is_kept_disabled" = no ] && deb-systemd-helper --quiet was-enabled "$unit"; then
    deb-systemd-helper enable "$unit" > /dev/null || true
  else
    is_kept_disabled=yes
    deb-systemd-helper update-state "$unit" > /dev/null || true
  fi
}

# Whether the configuration has a mistake, by the program itself, as the user and with the variables of the unit. What
# else goes wrong with the question is no answer.
has_mistake() {
  code=0
  # shellcheck disable=SC2086 # a list of words
  timeout 60 systemd-run --quiet --wait --collect --pipe --uid="$unit_user" --property="EnvironmentFile=-$environment" \
    $check < /dev/null > /dev/null || code=$?
  [ "$code" -eq 2 ]
}

# usage: start_unit OPTIONS-OF-SYSTEMCTL; after enable_unit
start_unit() {
  if [ "$is_kept_disabled" = yes ]; then return 0; fi
  # shellcheck disable=SC2086 # a list of words
  timeout 90 systemctl start $1 "$unit" ||
    echo "$name: $unit did not start; see: journalctl -u $unit" >&2
}

# Restarts what runs. On a mistake in the configuration the program of before goes on: it would not come back.
# usage: restart_unit OPTIONS-OF-SYSTEMCTL
restart_unit() {
  if systemctl --quiet is-active "$unit" && has_mistake; then
    echo "$name: the version of before still runs: correct the configuration, then: systemctl restart $unit" >&2
    return 0
  fi
  # shellcheck disable=SC2086 # a list of words
  timeout 90 systemctl try-restart $1 "$unit" ||
    echo "$name: $unit did not restart; see: journalctl -u $unit" >&2
}

# usage: bring_up VERSION-BEFORE OPTIONS-OF-SYSTEMCTL; after enable_unit
bring_up() {
  if ! [ -d /run/systemd/system ]; then return 0; fi
  systemctl daemon-reload || true
  if [ -n "$1" ] && [ "$was_removed" = no ]; then
    restart_unit "$2"
  elif is_set_up; then
    start_unit "$2"
  fi
}

# An upgrade restarts it afterwards, in postinst.
stop_unit() {
  if [ -d /run/systemd/system ]; then systemctl stop "$unit" || true; fi
}

# usage: forget_unit remove|purge|...
forget_unit() {
  if [ -x /usr/bin/deb-systemd-helper ]; then
    case "$1" in
      remove) deb-systemd-helper mask "$unit" > /dev/null || true ;;
      purge)
        deb-systemd-helper purge "$unit" > /dev/null || true
        deb-systemd-helper unmask "$unit" > /dev/null || true
        ;;
    esac
  fi
  if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
}
