#include "runlog/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/fd.h"

void source_close(struct source *source)
{
	close_fdp(&source->fd);
	pack_close(source->pack);
	source->pack = NULL;
	memory_log_unref(source->held);
	source->held = NULL;
}

struct source source_of_memory(struct memory_log *held, enum log_file which)
{
	return (struct source){ .fd = -1, .held = held, .which = which };
}

char *log_path(const char *name, enum log_file which, int64_t segment, enum log_form form)
{
	static const char *const BEHIND[] = {
		[FORM_PLAIN] = "", [FORM_PACKED] = ".zst", [FORM_HALF] = ".tmp"
	};
	const char *kind = which == LOG_INDEX ? "index" : "data";
	char fan[FAN_SIZE];

	log_fan(name, fan);
	if (segment == 0)
		return xasprintf("%s/%s.%s%s", fan, name, kind, BEHIND[form]);
	return xasprintf("%s/%s.%s-%lld%s", fan, name, kind, (long long)segment, BEHIND[form]);
}

bool log_file_exists(struct runlog_store *store, const char *name, enum log_file which,
		     int64_t segment, enum log_form form)
{
	_cleanup_free_ char *path = log_path(name, which, segment, form);

	return faccessat(store->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_form(struct runlog_store *store, const char *name, enum log_file which,
		     int64_t segment, enum log_form form, struct error *err)
{
	_cleanup_free_ char *path = log_path(name, which, segment, form);
	int fd = openat(store->dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 && errno != ENOENT)
		error_errno(err, errno, "open log %s", name);
	else if (fd < 0)
		error_set(err, ERR_NOT_FOUND, "there is no log %s", name);
	return fd;
}

/*
 * Packing makes the packed file before it removes the plain one, unpacking the other way round: a
 * file that is neither was turned between the two looks, and is there at the next.
 */
int source_open(struct runlog_store *store, const char *name, enum log_file which, int64_t segment,
		struct source *source, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	*source = SOURCE_NONE;
	if (log_name_check(name, err) < 0)
		return -1;
	for (int look = 0; look < 2; look++) {
		source->fd = open_form(store, name, which, segment, FORM_PLAIN, &why);
		if (source->fd >= 0)
			return 0;
		if (why.code != ERR_NOT_FOUND)
			break;

		int fd = open_form(store, name, which, segment, FORM_PACKED, &why);

		if (fd >= 0)
			return pack_open(fd, &source->pack, err) < 0
				       ? error_wrap(err, "log %s", name)
				       : 0;
		if (why.code != ERR_NOT_FOUND)
			break;
	}
	error_move(err, &why);
	return -1;
}

int64_t source_size(const struct source *source, struct error *err)
{
	struct stat st;

	if (source->pack)
		return pack_size(source->pack);
	if (source->held)
		return memory_log_size(source->held, source->which);
	if (fstat(source->fd, &st) < 0)
		return error_errno(err, errno, "look at a log");
	return st.st_size;
}

ssize_t source_read(struct source *source, void *buf, size_t len, int64_t offset, struct error *err)
{
	size_t done = 0;

	if (source->held)
		return memory_log_read(source->held, source->which, buf, len, offset);
	while (done < len) {
		int64_t at = offset + (int64_t)done;
		char *to = (char *)buf + done;
		ssize_t n = source->pack ? pack_read(source->pack, to, len - done, at, err)
					 : pread(source->fd, to, len - done, (off_t)at);

		if (n < 0 && !source->pack && errno == EINTR)
			continue;
		if (n < 0)
			return source->pack ? -1 : error_errno(err, errno, "read a log");
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int64_t log_data_size(struct runlog_store *store, const char *name, struct error *err)
{
	int64_t total = 0;

	for (int64_t segment = 0;; segment++) {
		_cleanup_source_ struct source source = SOURCE_NONE;
		_cleanup_error_ struct error why = { 0 };

		if (source_open(store, name, LOG_DATA, segment, &source, &why) < 0) {
			if (segment > 0 && why.code == ERR_NOT_FOUND)
				return total;
			error_move(err, &why);
			return -1;
		}

		int64_t size = source_size(&source, err);

		if (size < 0)
			return -1;
		total += MIN_OF(size, store->segment_bytes);
		if (size < store->segment_bytes)
			return total;
	}
}
