#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "db/restore.h"

#define SUFFIX ".tmp"

/* <name>.<id>.tmp, as db_backup calls a copy until it is complete. */
static bool is_copy(const char *name)
{
	size_t len = strlen(name), tail = ID_SIZE - 1 + strlen(SUFFIX);
	char id[ID_SIZE];

	if (!str_ends(name, SUFFIX) || len < tail + 2 || name[len - tail - 1] != '.')
		return false;
	memcpy(id, name + len - tail, ID_SIZE - 1);
	id[ID_SIZE - 1] = '\0';
	return id_is_valid(id);
}

static bool is_abandoned(int dirfd, const char *name, int64_t idle_s)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       st.st_uid == geteuid() && time(NULL) - st.st_mtime >= idle_s;
}

size_t db_backup_sweep(const char *path, int64_t idle_s)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	size_t removed = 0;

	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (!is_copy(name) || !is_abandoned(dirfd(dir), name, idle_s))
			continue;
		if (unlinkat(dirfd(dir), name, 0) == 0)
			removed++;
		else
			log_warn("cannot remove the unfinished copy %s/%s: %s", path, name,
				 strerror(errno));
	}
	if (dir)
		closedir(dir);
	if (removed)
		log_info("removed %zu unfinished copies of a database from %s", removed, path);
	return removed;
}
