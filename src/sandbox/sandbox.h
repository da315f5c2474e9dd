/*
 * The native sandbox: a process with walls around it. This room builds the walls for the keeper,
 * which starts one relay in each; it knows places only by their directories and no leases at all.
 * Every step names the attack it stops. Two modes:
 *
 *   root            each sandbox has a range of 65,536 host user ids of its own; its first process
 *                   is root of its user namespace and the payload another user of it
 *   ordinary user   one user id, the caller's own, seen as 1000 inside; the system is read-only
 *
 * In the order of their use: spec.c what is wanted, checked; ids.c uid ranges; etc.c a synthesised
 * /etc; limits.c cgroups; namespaces.c the clone and the identity; mounts.c the file tree, with
 * root_user.c for an unpacked root and sockets.c for what lies in directories of the host; caps.c,
 * landlock.c and filter.c what the first process gives up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"
#include "wire/message.h"
#include "wire/walls.h"

#define SANDBOX_HOSTNAME "berth"
#define SANDBOX_WORKSPACE "/workspace"
#define SANDBOX_USER "agent" /* when none is named */
#define SANDBOX_UID 1000
#define SANDBOX_MOUNTS_MAX 32
/* In the place's directory: what is written over a directory of the host. */
#define SANDBOX_UPPER "over-workspace"
#define SANDBOX_WORK "work-workspace"
#define RANGE_SIZE 65536u

struct sandbox_mount {
	int source_fd; /* O_PATH: what was checked is what is mounted */
	char *target;
	bool writable, is_dir;
	uid_t owner; /* of the source; who writes to it from inside writes in this name */
	gid_t group;
};

/* A directory of the host for SANDBOX_WORKSPACE. */
struct sandbox_workspace {
	int source_fd; /* O_PATH, or -1: the place has a directory of its own */
	char *path;    /* for people */
	bool overlay;  /* read-only under a layer of the place's own; else the directory itself */
	uid_t owner;
	gid_t group;
	mode_t mode;
	struct buf masks; /* with overlay: wire/hidden_paths.h, checked */
};

struct sandbox_spec {
	int root_fd; /* O_PATH of an unpacked root, or -1: programs of the host */
	bool tmpfs, host_network, sockets;
	uint64_t memory_bytes, disk_bytes;
	uint32_t pids, cpu_percent, open_files;
	uint32_t soft_limits; /* WIRE_SOFT_* */
	struct sandbox_mount mounts[SANDBOX_MOUNTS_MAX];
	size_t mount_count;
	char user[33];
	uid_t uid;                      /* of the payload, inside */
	struct wire_bytes seccomp_base; /* for everything inside; may be empty, then */
	struct wire_bytes seccomp_exec; /* this is all of the filter. For every exec */
	uint64_t require;
	char *store; /* NULL: the files go with the place */
	struct sandbox_workspace workspace;
};
#define SANDBOX_SPEC_NONE                                                                          \
	{                                                                                          \
		.root_fd = -1, .workspace = {.source_fd = -1 }                                     \
	}
void sandbox_spec_clear(struct sandbox_spec *spec);

/* What is decided when the keeper is started. */
struct sandbox_policy {
	/* For servers that name no bounds: where roots and mounts may be; NULL: nowhere. */
	char **allowed;
	const char *secret; /* the data directory: never visible, whatever is allowed */
};
/* ERR_FORBIDDEN when a place that has the directory `real` would see something of the server's. */
int policy_guard(const struct sandbox_policy *policy, const struct wire_strv *closed,
		 const char *given, const char *real, struct error *err);
/*
 * Reads and checks one SANDBOX frame. Strings of it are copied, filters point into the frame.
 * ERR_VALIDATION, ERR_FORBIDDEN for a path that is not allowed, ERR_UNPROCESSABLE for a workspace
 * that this place cannot have mounted.
 */
int sandbox_spec_read(const struct wire_bytes *frame, const struct sandbox_policy *policy,
		      struct sandbox_spec *out, struct error *err);

/* ids.c. Ranges that are taken on this machine by other keepers are left alone. */
struct range_book {
	uint32_t base;     /* first uid of range 0 */
	uint32_t count;    /* how many there are */
	int registry_fd;   /* directory shared by all keepers of the machine, or -1 */
	const char *owner; /* our directory */
	unsigned kept;     /* registered for us and free: making entries is dear on some disks */
};
/* ERR_VALIDATION when the ids are somebody's by /etc/subuid, /etc/subgid or /etc/passwd. */
int range_book_open(struct range_book *book, uint32_t base, const char *owner, struct error *err);
/* A number that `is_used` denies; registered. */
int range_take(struct range_book *book, bool (*is_used)(uint32_t number, void *arg), void *arg,
	       uint32_t *number, struct error *err);
/* For a range found in a recipe after a restart. */
void range_keep(struct range_book *book, uint32_t number);
void range_give_back(struct range_book *book, uint32_t number);
/* Ours that nobody has: a keeper that was killed between registering one and writing it down. */
void range_give_back_unused(struct range_book *book, bool (*is_used)(uint32_t number, void *arg),
			    void *arg);
static inline uid_t range_uid(const struct range_book *book, uint32_t number)
{
	return book->base + number * RANGE_SIZE;
}

/*
 * etc.c: DIR/etc/<user>-<network>-<tag>, made on first use; a descriptor of it. Nothing of the
 * host's /etc but a list of names that programs need and everybody may read.
 */
#define ETC_TAG_SIZE 17
/* Another one when something of the host's has changed. */
void etc_tag(char out[ETC_TAG_SIZE]);
int etc_open(int dir_fd, const char *tag, const char *user, uid_t uid, bool host_network, int *fd,
	     struct error *err);
/* Those with other tags go. No place may have one of them. */
void etc_forget(int dir_fd, const char *tag);

/* limits.c */
enum { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPU, LIMITS };
struct limit_bases {
	char *v1[LIMITS]; /* directory below which this keeper makes cgroups; NULL: none usable */
	bool unified;     /* the v2 tree has these controllers: limits go to the place's own */
};
/* `tag` tells keepers apart. */
void limit_bases_find(struct limit_bases *bases, const char *tag, const char *v2_base);
void limit_bases_remove(struct limit_bases *bases);
struct limit_set {
	char *v1[LIMITS];     /* cgroups of this sandbox, NULL: none */
	int enter_fd[LIMITS]; /* to write "0" into; -1: none */
	int oom_fd;           /* -1: none */
};
void limit_set_init(struct limit_set *set);
void limit_set_clear(struct limit_set *set);
/* Names them; nothing is made yet. -1 with ERR_UNAVAILABLE: a limit is wanted and there is no way.
 */
int limits_plan(const struct limit_bases *bases, const struct sandbox_spec *spec, const char *id,
		struct limit_set *set, struct error *err);
/* First: limits that nobody asked for are dropped where there is no way to have them. */
void limits_soften(const struct limit_bases *bases, struct sandbox_spec *spec);
int limits_make(const struct limit_bases *bases, const struct sandbox_spec *spec,
		const char *v2_cgroup, struct limit_set *set, uint64_t *walls, struct error *err);
/* 0 when it is gone. */
int limit_cgroup_remove(const char *path);

/* namespaces.c */
struct sandbox_birth {
	const struct sandbox_spec *spec;
	uid_t base;      /* first host id of its range; 0: ordinary user */
	int files_fd;    /* host directory for what is written; -1 with tmpfs */
	int etc_fd;      /* -1 with an unpacked root */
	int cgroup_fd;   /* v2 directory to be born in; -1: none */
	int net_fd;      /* a network namespace nobody is in, for it alone; -1: it makes one */
	int home_net_fd; /* the parent's own, with net_fd */
	int lock_fd;     /* the parent's; the child must not hold it when the parent is gone */
	int report_fd;   /* the child says there what stands ("walls HEX\n") or what failed */
	uint64_t walls;  /* that stand already: limits */
	unsigned system; /* which system directories the host has; found by sandbox_start */
	/* In the child, inside: becomes the first program. Returns only on failure. */
	void (*enter)(void *arg);
	void *arg;
};
int sandbox_start(struct sandbox_birth *birth, pid_t *pid, struct error *err);
/* Of the network namespace we are in. Programs that serve themselves on 127.0.0.1 work without any
 * other network. */
int sandbox_raise_loopback(struct error *err);
/*
 * "walls 3f" -> the set; 0 when the text is none. `why` gets the child's complaint, if any;
 * `unsuited` (NULL: not asked) that it is about a workspace that cannot be mounted.
 */
uint64_t sandbox_report_read(char *text, const char **why, bool *unsuited);

/* mounts.c */
unsigned system_directories(void);
struct tree_set {
	int fd[SANDBOX_MOUNTS_MAX + 10];
	size_t count;
};
void tree_set_clear(struct tree_set *trees);
/*
 * Detached mounts of everything that comes from outside. As root before the child builds, with ids
 * translated through its user namespace; as an ordinary user by the child itself (userns_fd -1).
 */
int trees_open(const struct sandbox_birth *birth, int userns_fd, struct tree_set *out,
	       struct error *err);
/* In the child. Afterwards "/" is the sandbox and nothing else is reachable by a path. */
int mounts_build(const struct sandbox_birth *birth, struct tree_set *trees, uint64_t *walls,
		 struct error *err);

/*
 * sockets.c: in the child, once the directory `tree` is mounted where it belongs: unix sockets in
 * it get covers that are made in `stage`. `what` is its name for people.
 */
int sockets_cover(const struct sandbox_birth *birth, int stage, int tree, const char *what,
		  struct error *err);

/* root_user.c: in the child; `upper` gets what `lower`, an unpacked root, does not say of the user.
 */
int root_user_add(const struct sandbox_birth *birth, int lower, int upper, struct error *err);

/* owner.c: user namespaces through which files of the host seem to be the payload's. */
int owner_userns(uid_t owner, gid_t group, uid_t payload, struct error *err);
/*
 * The same for a whole tree that is only read: every id seems to be what it is on the host, but the
 * owner's and the payload's (`payload` of the range at `base`), which change places.
 */
int exchanged_userns(uid_t owner, gid_t group, uid_t base, uid_t payload, struct error *err);

/* workspace.c */
int workspace_spec_read(const struct wire_sandbox *m, const struct sandbox_policy *policy,
			struct sandbox_workspace *out, struct error *err);
void workspace_spec_clear(struct sandbox_workspace *workspace);
/* Its detached mount; -1 with err. `userns_fd`: the sandbox's, or -1 for an ordinary user. */
int workspace_tree(const struct sandbox_birth *birth, int userns_fd, int tree, struct error *err);
/*
 * In the child: makes the upper layer at upper_fd ready for a mount over lower_fd: owner, mode and
 * everything that is not to be seen.
 */
int workspace_prepare_upper(const struct sandbox_birth *birth, int upper_fd, int lower_fd,
			    struct error *err);

/* caps.c: in the child, before it becomes the relay. */
int caps_settle(const struct sandbox_birth *birth, struct error *err);
/* landlock.c: true when the scope holds. */
bool landlock_scope(void);
/* filter.c: in the child, last of all. Needs no_new_privs. */
int filter_settle(const struct sandbox_birth *birth, struct error *err);
