/*
 * Landlock adds one thing that namespaces lack: abstract unix sockets belong to the network
 * namespace, so a place with the host's network could speak to every service that listens on one
 * (D-Bus, X11, container daemons). The scope ends that, and signals to outside as a second wall.
 * Only where the kernel knows scopes (ABI 6, Linux 6.12).
 */
#include "sandbox/sandbox.h"

#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
#define RULESET_VERSION 1u
#define SCOPED_ABI 6
#define SCOPE_ABSTRACT_UNIX_SOCKET 1ull
#define SCOPE_SIGNAL 2ull

struct ruleset {
	uint64_t handled_access_fs, handled_access_net, scoped;
};

bool landlock_scope(void)
{
	struct ruleset rules = { .scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL };
	_cleanup_close_ int fd = -1;

	if (syscall(SYS_landlock_create_ruleset, NULL, 0, RULESET_VERSION) < SCOPED_ABI)
		return false;
	fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
	return fd >= 0 && syscall(SYS_landlock_restrict_self, fd, 0) == 0;
}
