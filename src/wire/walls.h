/*
 * The walls of a native sandbox: each is one thing that stands between the payload and the host. A
 * place records those it was built with; a config can require some. Numbers are their order: append
 * only.
 *
 * X(NAME, "name"); the comment says what it means
 */
#pragma once

#include <stdint.h>

#define WIRE_WALLS(X)                                                                              \
	X(WALL_USER_NS, "user_namespace")   /* its own user ids: root inside is nobody outside */  \
	X(WALL_MOUNT_NS, "mount_namespace") /* its own file tree, the host's is detached */        \
	X(WALL_PID_NS, "pid_namespace") /* processes of the host cannot be seen or signalled */    \
	X(WALL_IPC_NS, "ipc_namespace") /* no shared memory or queues with the host */             \
	X(WALL_UTS_NS, "uts_namespace") /* its own host name */                                    \
	X(WALL_CGROUP_NS, "cgroup_namespace") /* the host's cgroups cannot be seen */              \
	X(WALL_NET_NS, "network_none")        /* no network but its own loopback */                \
	X(WALL_UID_RANGE, "uid_range")        /* host user ids that nobody else has */             \
	X(WALL_PAYLOAD_UID, "payload_uid")    /* the payload is another user than its relay */     \
	X(WALL_SYSTEM_READ_ONLY, "system_read_only") /* the host's programs cannot be changed */   \
	X(WALL_NO_NEW_PRIVS, "no_new_privs")         /* set-user-id programs give nothing */       \
	X(WALL_NO_CAPS, "no_capabilities") /* the payload has no capability and can get none */    \
	X(WALL_SECCOMP, "seccomp")         /* system calls it does not need are refused */         \
	X(WALL_LANDLOCK, "landlock_scope") /* no abstract sockets or signals outside the place */  \
	X(WALL_PROC_MASKED, "proc_masked") /* interfaces of the kernel in /proc are hidden */      \
	X(WALL_TREE_CGROUP, "cgroup_kill") /* no process can leave what is killed at the end */    \
	X(WALL_MEMORY, "limit_memory")     /* memory is limited */                                 \
	X(WALL_PIDS, "limit_pids")         /* the number of processes is limited */                \
	X(WALL_CPU, "limit_cpu")           /* processor time is limited */                         \
	X(WALL_DISK, "limit_disk")         /* what it can write is limited */                      \
	X(WALL_OPEN_FILES, "limit_open_files") /* open files per process are limited */

enum wire_wall {
#define X(name, text) name,
	WIRE_WALLS(X)
#undef X
		WALL_COUNT
};

#define WALL_BIT(wall) (1ull << (wall))

const char *wall_name(unsigned wall); /* NULL when unknown */
/* The wall of that name, or WALL_COUNT. */
unsigned wall_find(const char *name);
/* Appends the names of the set, with commas, to what fits. */
void walls_print(uint64_t walls, char *out, unsigned long size);
