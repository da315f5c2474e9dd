#!/bin/sh
# Every system call that the kernel's headers of this machine name, as X("name", number).
set -eu
echo '#include <asm/unistd.h>' | gcc -E -dM - |
	sed -n 's/^#define __NR_\([a-z0-9_]*\) \([0-9][0-9]*\)$/X("\1", \2)/p' | sort >"$1"
