#include "base/owner.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/mem.h"

int owner_of(int root_fd, struct owner *out, struct error *err)
{
	struct stat st;

	if (fstat(root_fd, &st) < 0)
		return error_errno(err, errno, "stat of the workspace");
	*out = (struct owner){ .uid = st.st_uid,
			       .gid = st.st_gid,
			       .differs = geteuid() == 0 && st.st_uid != 0 };
	return 0;
}

/* What root's own groups may read is not the owner's to read. Where a user namespace does not let
 * them be dropped there are none of the host's. */
static void drop_groups(struct owner_rights *as)
{
	int count = getgroups(0, NULL);

	if (count <= 0)
		return;
	as->groups = xreallocarray(NULL, (size_t)count, sizeof(*as->groups));
	as->group_count = getgroups(count, as->groups);
	if (as->group_count > 0)
		syscall(SYS_setgroups, 0, NULL);
}

int owner_take(const struct owner *owner, struct owner_rights *as, struct error *err)
{
	if (!owner->differs)
		return 0;
	as->taken = true;
	drop_groups(as);
	setfsgid(owner->gid);
	setfsuid(owner->uid);
	/* They report no failure; asking with an id that cannot be set tells which one counts. */
	if ((uid_t)setfsuid((uid_t)-1) != owner->uid || (gid_t)setfsgid((gid_t)-1) != owner->gid) {
		owner_leave(as);
		return error_set(err, ERR_IO, "cannot take the rights of user %u", owner->uid);
	}
	return 0;
}

void owner_leave(struct owner_rights *as)
{
	int saved = errno;

	if (as->taken) {
		setfsuid(geteuid());
		setfsgid(getegid());
		if (as->group_count > 0)
			syscall(SYS_setgroups, (size_t)as->group_count, as->groups);
	}
	free(as->groups);
	*as = (struct owner_rights){ 0 };
	errno = saved;
}
