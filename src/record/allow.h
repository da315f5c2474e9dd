/*
 * What of this host callers with a token may have: settings of the server, asked anew for every
 * place. The server's own user and root need none of them.
 *
 * Four lists of directories, each entry for every company or for one:
 *
 *     /srv/tools           acme=/srv/roots           (a company's name or id before the "=")
 *
 * and switches, for what is no directory.
 */
#pragma once

#include "record/record.h"

enum allow_list {
	ALLOW_ROOT,      /* unpacked roots of places */
	ALLOW_MOUNT,     /* mounts that can be read */
	ALLOW_MOUNT_RW,  /* mounts that can be written, and read */
	ALLOW_WORKSPACE, /* workspaces of runs and leases */
	ALLOW_LISTS
};
enum allow_switch {
	ALLOW_HOST_NETWORK,
	ALLOW_WRITABLE_MOUNTS, /* besides ALLOW_MOUNT_RW */
	ALLOW_ROOT_USER,       /* root of a place, not of the host */
	ALLOW_IN_PLACE,        /* workspaces that are written where they are */
	ALLOW_SOCKETS,         /* unix sockets of the host that lie in mounts */
	ALLOW_SWITCHES
};
struct allow {
	char **list[ALLOW_LISTS]; /* NULL: nothing */
	bool open[ALLOW_SWITCHES];
};
/* Of `berth serve`, without dashes. */
extern const char *const ALLOW_LIST_FLAGS[ALLOW_LISTS];
extern const char *const ALLOW_SWITCH_FLAGS[ALLOW_SWITCHES];
/* That an entry of a list is one. ERR_VALIDATION. */
int allow_entry_check(const char *entry, struct error *err);
/* {flag: entries or bool}; NULL is nothing. */
json_t *allow_json(const struct allow *allow);

/* Who asks. Company names are looked up in `db`, where an entry has one. */
struct allow_caller {
	const struct allow *allow; /* NULL: nothing is allowed */
	struct db *db;
	const char *company_id;
	bool trusted; /* the server's own user, root, or the server itself: everything is allowed */
};
/*
 * Whether the path, resolved as far as it can be, is below a directory of the list. ERR_FORBIDDEN
 * names the flag. *within, if asked for, is that directory, resolved; for the trusted "/".
 */
int allow_path(const struct allow_caller *caller, enum allow_list list, const char *path,
	       char **within, struct error *err);
/* ERR_FORBIDDEN says what is closed and names the flag that opens it. */
int allow_switch(const struct allow_caller *caller, enum allow_switch which, struct error *err);

/* What a config wants of the host; its texts are the config's. */
#define PLACE_MOUNTS_MAX 32
struct place_needs {
	const char *root; /* NULL: none of its own */
	struct {
		const char *source;
		bool writable;
	} mounts[PLACE_MOUNTS_MAX];
	size_t mount_count;
	bool host_network, root_user, sockets;
};
/* Directories beyond which none of them may lead, for those who open them. */
struct place_bounds {
	char *root;
	char *mounts[PLACE_MOUNTS_MAX];
};
void place_bounds_clear(struct place_bounds *bounds);
/* All of it at once; `bounds` may be NULL. ERR_FORBIDDEN for the first that is not allowed. */
int allow_needs(const struct allow_caller *caller, const struct place_needs *needs,
		struct place_bounds *bounds, struct error *err);
