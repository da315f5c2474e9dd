/*
 * Capabilities of the relay, and through it of everything in the place. Set before the relay is
 * executed, so that not even a relay that was taken over can have more.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <sys/prctl.h>
#include "base/fault.h"

#define LAST_CAPABILITY 63
#define CAP_KILL_ 5
#define CAP_SETGID_ 6
#define CAP_SETUID_ 7
#define CAP_SETPCAP_ 8

/* What a relay that is root of its namespace needs: to start, signal and strip the payload. */
static bool is_needed(const struct sandbox_birth *birth, unsigned long cap)
{
	return birth->base != 0 && (cap == CAP_KILL_ || cap == CAP_SETGID_ || cap == CAP_SETUID_ ||
				    cap == CAP_SETPCAP_);
}

int caps_settle(const struct sandbox_birth *birth, struct error *err)
{
	/* Stops: mounting, tracing, raw sockets, device nodes by a root of the namespace. */
	for (unsigned long cap = 0; cap <= LAST_CAPABILITY; cap++) {
		if (is_needed(birth, cap) || FENCE_OFF("sandbox.wall.caps") ||
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
			continue;
		if (errno == EINVAL) /* beyond the last one that the kernel knows */
			break;
		return error_errno(err, errno, "dropping capability %lu", cap);
	}
	/* Stops: gaining anything by executing a set-user-id program or one with file capabilities.
	 */
	if (!FENCE_OFF("sandbox.wall.no_new_privs") && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return error_errno(err, errno, "no_new_privs");
	return 0;
}
