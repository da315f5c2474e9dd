/*
 * Who a payload runs as. The relay links no name service: it reads /etc/passwd and /etc/group
 * itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/error.h"

#define USER_GROUPS_MAX 64

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX]; /* supplementary */
	size_t group_count;
	char name[64];
	char home[256];
	char shell[128];
};

/* "name", "uid" or "uid:gid". A number without an entry in passwd is taken as it is, home "/". */
int user_find(const char *text, struct user *out, struct error *err);

/* Text of /etc/passwd and /etc/group; empty when there is none. One question only: looking for the
 * answer cuts it up. */
struct user_tables {
	struct buf passwd, group;
};
void user_tables_read(struct user_tables *tables);
void user_tables_clear(struct user_tables *tables);
/* By number, with gid forced to the given one. Never fails: unknown users have no groups and home
 * "/". */
void user_of_ids(struct user_tables *tables, uid_t uid, gid_t gid, struct user *out);

/*
 * File access in the user's name: checks of the kernel then see its uid, gid and groups, not the
 * relay's. Does nothing when the relay is that user already.
 */
void user_files_enter(const struct user *user);
void user_files_leave(void);
