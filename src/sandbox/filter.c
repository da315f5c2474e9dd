/*
 * The part of the system call filter that stands around everything inside, the relay included. A
 * filter that a command installs for itself costs more than all its other preparations together, so
 * only what the relay must still be able to do is left to that (relay/launch.c); what a process and
 * what its parents refuse is refused both.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fault.h"

#define BPF_INSTRUCTION 8
#define SECCOMP_FILTER 1u

int filter_settle(const struct sandbox_birth *birth, struct error *err)
{
	const struct wire_bytes *base = &birth->spec->seccomp_base;
	struct {
		unsigned short count;
		const void *program;
	} filter = { (unsigned short)(base->len / BPF_INSTRUCTION), base->data };

	if (base->len == 0 || FENCE_OFF("sandbox.wall.seccomp"))
		return 0;
	/* Never less than all of it: without this part the one of the execs is not enough. */
	return syscall(SYS_seccomp, SECCOMP_FILTER, 0u, &filter) < 0
		       ? error_errno(err, errno, "filtering system calls")
		       : 0;
}
