#!/usr/bin/env bash
# Prepare one machine of the Vagrantfile: `provision.sh plain|apparmor|strict|kernel-5.10`, or `report` what it is like.
# What the tests themselves need is installed by tests/run, not here.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

setting() { # setting NAME VALUE: now and after a restart
  echo "$1 = $2" >>/etc/sysctl.d/90-agentwrap-test.conf
  sysctl -q -w "$1=$2"
}

older_kernel() { # The previous Debian release's kernel from wherever this machine gets its packages.
  local release=bullseye line
  line=$(grep -rhE '^deb .*bookworm main' /etc/apt/sources.list /etc/apt/sources.list.d/ | head -1)
  [ -n "$line" ] || { echo "provision.sh: no line to take the mirror from" >&2; exit 1; }
  echo "${line/bookworm/$release}" >/etc/apt/sources.list.d/older-kernel.list
  printf 'Package: *\nPin: release n=%s\nPin-Priority: 100\n' "$release" >/etc/apt/preferences.d/older-kernel
  apt-get -qq update
  local package
  package=$(apt-cache search --names-only '^linux-image-5\.10\.0-[0-9]+-amd64$' | sort -V | tail -1 | cut -d' ' -f1)
  [ -n "$package" ] || { echo "provision.sh: no 5.10 kernel to be had" >&2; exit 1; }
  apt-get -qq -y install "$package"
  # Start it by default: the newer one stays installed and would win.
  sed -i "s|^GRUB_DEFAULT=.*|GRUB_DEFAULT='Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux ${package#linux-image-}'|" \
    /etc/default/grub
  update-grub 2>/dev/null
}

report() {
  echo "kernel $(uname -r)"
  local name
  for name in kernel.apparmor_restrict_unprivileged_userns kernel.unprivileged_userns_clone \
    kernel.yama.ptrace_scope user.max_user_namespaces; do
    sysctl "$name" 2>/dev/null || echo "$name: not on this kernel"
  done
  echo "security modules: $(cat /sys/kernel/security/lsm 2>/dev/null || echo unknown)"
}

case ${1:-} in
  plain) ;;
  apparmor) setting kernel.apparmor_restrict_unprivileged_userns 1 ;;
  strict)
    setting kernel.yama.ptrace_scope 2
    setting user.max_user_namespaces 0
    ;;
  kernel-5.10) older_kernel ;;
  report) report; exit ;;
  *) echo "provision.sh: plain, apparmor, strict, kernel-5.10 or report" >&2; exit 2 ;;
esac
apt-get -qq update
apt-get -qq -y install --no-install-recommends git python3-venv rsync
