/*
 * The rights of a workspace's owner. A server that is root opens files of somebody else's directory
 * as that user does, so that neither a payload nor a link, a `.git` file or an alternate in the
 * tree gets what its owner may not read. The ids are the thread's own (setfsuid(2), and setgroups
 * without libc, which would tell all threads): others go on as root.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/error.h"

struct owner {
	uid_t uid;
	gid_t gid;
	bool differs; /* the server is root, the owner is not: there are rights to take */
};
int owner_of(int root_fd, struct owner *out, struct error *err);

/*
 * `_cleanup_(owner_leave) struct owner_rights as = { 0 }; if (owner_take(&owner, &as, err) < 0)`:
 * until the end of the scope this thread opens and makes files as the owner does.
 */
struct owner_rights {
	bool taken;
	gid_t *groups; /* of the thread before */
	int group_count;
};
int owner_take(const struct owner *owner, struct owner_rights *as, struct error *err);
void owner_leave(struct owner_rights *as);
