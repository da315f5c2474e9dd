#include "exec/exec_store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/id.h"

#define RECORD_BYTES ((size_t)16 << 10)

static int open_below(int dirfd, const char *name, int *fd, struct error *err)
{
	if (dir_make(dirfd, name, 0700, err) < 0)
		return -1;
	return dir_open(dirfd, name, fd, err);
}

int exec_store_open(struct exec_store *store, int dirfd, const char *records, const char *logs,
		    int64_t log_bytes, bool durable, struct error *err)
{
	_cleanup_close_ int log_dir = -1;

	*store = EXEC_STORE_NONE;
	store->durable = durable;
	if (open_below(dirfd, records, &store->dirfd, err) < 0 ||
	    open_below(dirfd, logs, &log_dir, err) < 0)
		return -1;
	if (durable)
		dir_sweep_temporary(store->dirfd);
	return runlog_store_open(log_dir, log_bytes, &store->logs, err);
}

void exec_store_close(struct exec_store *store)
{
	if (store->logs)
		runlog_store_close(store->logs);
	close_fdp(&store->dirfd);
	*store = EXEC_STORE_NONE;
}

/*
 * One write of a few hundred bytes: a process that is killed has done it or not. The record of the
 * end is longer than the one it replaces, so that there is never a moment without a record.
 */
static int write_plainly(struct exec_store *store, const char *id, const char *text,
			 struct error *err)
{
	_cleanup_close_ int fd =
		openat(store->dirfd, id, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot write the record of exec %s", id);
	return fd_pwrite_all(fd, text, strlen(text), 0, err);
}

int exec_store_put(struct exec_store *store, const char *id, const json_t *record,
		   struct error *err)
{
	_cleanup_free_ char *text = json_text(record);

	return store->durable ? file_replace(store->dirfd, id, text, strlen(text), 0600, err)
			      : write_plainly(store, id, text, err);
}

int exec_store_read(struct exec_store *store, const char *id, json_t **record, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_error_ struct error why = { 0 };

	*record = NULL;
	if (!id_is_valid(id))
		return 0;
	if (file_read(store->dirfd, id, &text, RECORD_BYTES, &why) < 0) {
		if (why.errnum == 0 || why.errnum == ENOENT)
			return 0;
		error_move(err, &why);
		return -1;
	}
	*record = json_parse(buf_str(&text), text.len, NULL);
	if (*record && !json_is_object(*record)) {
		json_decref(*record);
		*record = NULL;
	}
	return 0;
}

json_t *exec_store_get(struct exec_store *store, const char *id)
{
	json_t *record;

	return exec_store_read(store, id, &record, NULL) == 0 ? record : NULL;
}

bool exec_store_has(struct exec_store *store, const char *id)
{
	struct stat st;

	return id_is_valid(id) && fstatat(store->dirfd, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int exec_store_remove(struct exec_store *store, const char *id, struct error *err)
{
	if (runlog_remove(store->logs, id, err) < 0)
		return -1;
	return exec_store_delete(store, id, err);
}

int exec_store_delete(struct exec_store *store, const char *id, struct error *err)
{
	if (unlinkat(store->dirfd, id, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "cannot remove the record of exec %s", id);
	return 0;
}

struct entry {
	char id[ID_SIZE];
	int64_t changed_ms;
};

static int by_age(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return (x->changed_ms > y->changed_ms) - (x->changed_ms < y->changed_ms);
}

int exec_store_each(struct exec_store *store, exec_store_visit_fn *visit, void *arg,
		    struct error *err)
{
	_cleanup_free_ struct entry *entries = NULL;
	size_t count = 0, room = 0;
	int fd = openat(store->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *found;

	if (!dir) {
		error_errno(err, errno, "cannot list the records of execs");
		close_fdp(&fd);
		return -1;
	}
	while ((found = readdir(dir))) {
		struct stat st;

		if (!id_is_valid(found->d_name) ||
		    fstatat(store->dirfd, found->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (count == room) {
			room = room ? room * 2 : 64;
			entries = xreallocarray(entries, room, sizeof(*entries));
		}
		id_copy(entries[count].id, found->d_name);
		entries[count++].changed_ms =
			(int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
	}
	closedir(dir);
	if (count)
		qsort(entries, count, sizeof(*entries), by_age);
	for (size_t i = 0; i < count && r >= 0; i++)
		r = visit(arg, entries[i].id, entries[i].changed_ms, err);
	return r < 0 ? -1 : 0;
}
