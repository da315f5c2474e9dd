#include "workspace/results.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"

int results_open(struct results *results, const char *path, struct error *err)
{
	results->root_fd = -1;
	if (dir_make(AT_FDCWD, path, 0700, err) < 0 ||
	    dir_open(AT_FDCWD, path, &results->root_fd, err) < 0)
		return error_wrap(err, "the results of runs");
	return 0;
}

void results_close(struct results *results)
{
	close_fdp(&results->root_fd);
}

static int run_missing(const char *run_id, struct error *err)
{
	return error_set(err, ERR_NOT_FOUND, "run %s has no files kept here", run_id);
}

/* mkdir, and its name durable. One that has a state had that before the state was written. */
static int make_run_dir(int root_fd, const char *run_id, struct error *err)
{
	char state[ID_SIZE + sizeof(RESULTS_STATE)];

	snprintf(state, sizeof(state), "%s/" RESULTS_STATE, run_id);
	if (mkdirat(root_fd, run_id, 0700) < 0) {
		if (errno != EEXIST)
			return error_errno(err, errno, "make the directory of run %s's files",
					   run_id);
		if (faccessat(root_fd, state, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return 0;
	}
	return dir_sync(root_fd, err);
}

int results_dir(const struct results *results, const char *run_id, bool make, int *fd,
		struct error *err)
{
	if (!id_is_valid(run_id))
		return run_missing("?", err);
	if (make && make_run_dir(results->root_fd, run_id, err) < 0)
		return -1;
	*fd = openat(results->root_fd, run_id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd >= 0)
		return 0;
	if (errno == ENOENT)
		return run_missing(run_id, err);
	return error_errno(err, errno, "open the directory of run %s's files", run_id);
}

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

int results_list(const struct results *results, char ***run_ids, struct error *err)
{
	_cleanup_strv_ char **ids = xcalloc(1, sizeof(*ids));
	int fd = openat(results->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	if (!dir) {
		error_errno(err, errno, "list the results of runs");
		close_fdp(&fd);
		return -1;
	}
	while ((errno = 0, entry = readdir(dir))) {
		if (id_is_valid(entry->d_name))
			strv_push(&ids, xstrdup(entry->d_name));
	}
	if (errno)
		return error_errno(err, errno, "list the results of runs");
	*run_ids = steal(ids);
	return 0;
}

/*
 * state.json goes last: a directory that is half gone still says whose it is, so that dropping can
 * be repeated.
 */
int results_drop(const struct results *results, const char *run_id, struct error *err)
{
	static const char *const parts[] = { RESULTS_CHANGES, RESULTS_BLOBS, RESULTS_GIT,
					     RESULTS_PLACE,   RESULTS_BASE,  RESULTS_JOURNAL,
					     RESULTS_MASKED,  RESULTS_STATE };
	_cleanup_close_ int fd = -1;

	if (results_dir(results, run_id, false, &fd, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (dir_remove_tree(fd, parts[i], err) < 0)
			return error_wrap(err, "drop the files of run %s", run_id);
	}
	if (dir_remove_tree(results->root_fd, run_id, err) < 0)
		return error_wrap(err, "drop the files of run %s", run_id);
	return dir_sync(results->root_fd, err);
}
