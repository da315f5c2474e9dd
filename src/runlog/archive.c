/*
 * Packing the files of logs, and unpacking one that is written again.
 *
 * Each turn makes the new form beside the old under a name nobody reads, syncs it, gives it its
 * name, syncs the directory, and only then removes the old form. Killed in between, there is the
 * old form, or both and the plain one counts; doing it again ends well.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "runlog/log_file.h"

/* What fits into a block or two gains nothing. */
#define PACK_MIN_BYTES 8192
/*
 * How far a writer is ahead of the segments that may be packed behind it: were its machine to lose
 * power, it would go on in one of the last two.
 */
#define WRITER_SEGMENTS 2

static int sync_fan(struct runlog_store *store, const char *name, struct error *err)
{
	_cleanup_close_ int fd = -1;
	char fan[FAN_SIZE];

	log_fan(name, fan);
	if (dir_open(store->dirfd, fan, &fd, err) < 0)
		return -1;
	return dir_sync(fd, err);
}

static int remove_form(struct runlog_store *store, const char *path, struct error *err)
{
	if (unlinkat(store->dirfd, path, 0) < 0 && errno != ENOENT)
		return error_errno(err, errno, "remove %s", path);
	return 0;
}

/* The new form is written: its name, then the old one's end. */
static int change_form(struct runlog_store *store, const char *name, int half_fd, const char *half,
		       const char *to, const char *from, struct error *err)
{
	if (fd_sync(half_fd, err) < 0 || FAULT_HERE("runlog.turn.written", err) < 0)
		return -1;
	if (renameat(store->dirfd, half, store->dirfd, to) < 0)
		return error_errno(err, errno, "rename %s", half);
	if (FAULT_HERE("runlog.turn.renamed", err) < 0 || sync_fan(store, name, err) < 0 ||
	    FAULT_HERE("runlog.turn.synced", err) < 0 || remove_form(store, from, err) < 0)
		return -1;
	return FAULT_HERE("runlog.turn.removed", err);
}

static int open_half(struct runlog_store *store, const char *path, int *fd, struct error *err)
{
	*fd = openat(store->dirfd, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	return *fd < 0 ? error_errno(err, errno, "make %s", path) : 0;
}

/* One file, if it is there and plain. */
static int pack_file(struct runlog_store *store, const char *name, enum log_file which,
		     int64_t segment, const atomic_bool *stop, struct error *err)
{
	_cleanup_free_ char *plain = log_path(name, which, segment, FORM_PLAIN);
	_cleanup_free_ char *packed = log_path(name, which, segment, FORM_PACKED);
	_cleanup_free_ char *half = log_path(name, which, segment, FORM_HALF);
	_cleanup_close_ int from = -1, to = -1;
	struct stat st;

	from = openat(store->dirfd, plain, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0 && errno == ENOENT)
		return 0;
	if (from < 0 || fstat(from, &st) < 0)
		return error_errno(err, errno, "open %s", plain);
	if (FAULT_HERE("runlog.pack.before", err) < 0 || open_half(store, half, &to, err) < 0)
		return -1;
	if (pack_write(from, st.st_size, to, stop, err) < 0) {
		unlinkat(store->dirfd, half, 0);
		return error_wrap(err, "log %s", name);
	}
	return change_form(store, name, to, half, packed, plain, err);
}

static int copy_out(struct source *source, int to, struct error *err)
{
	_cleanup_free_ char *part = xmalloc((size_t)PACK_FRAME);
	int64_t at = 0;
	ssize_t n;

	while ((n = source_read(source, part, (size_t)PACK_FRAME, at, err)) > 0) {
		if (fd_write_all(to, part, (size_t)n, err) < 0)
			return -1;
		at += n;
	}
	return n < 0 ? -1 : 0;
}

int log_unpack(struct runlog_store *store, const char *name, enum log_file which, int64_t segment,
	       struct error *err)
{
	_cleanup_free_ char *plain = log_path(name, which, segment, FORM_PLAIN);
	_cleanup_free_ char *packed = log_path(name, which, segment, FORM_PACKED);
	_cleanup_free_ char *half = log_path(name, which, segment, FORM_HALF);
	_cleanup_source_ struct source source = SOURCE_NONE;
	_cleanup_error_ struct error why = { 0 };
	_cleanup_close_ int to = -1;

	if (source_open(store, name, which, segment, &source, &why) < 0) {
		if (why.code == ERR_NOT_FOUND)
			return 0;
		error_move(err, &why);
		return -1;
	}
	/* The plain form counts: a packed one beside it is half made or half removed. */
	if (!source.pack)
		return remove_form(store, packed, err);
	if (open_half(store, half, &to, err) < 0 || copy_out(&source, to, err) < 0)
		return -1;
	return change_form(store, name, to, half, plain, packed, err);
}

/* Whether there is anything to gain. */
static bool is_worth_it(struct runlog_store *store, const char *name)
{
	return log_file_exists(store, name, LOG_DATA, 0, FORM_PACKED) ||
	       log_data_size(store, name, NULL) >= PACK_MIN_BYTES;
}

static int pack_segments(struct runlog_store *store, const char *name, int64_t end,
			 const atomic_bool *stop, struct error *err)
{
	for (int64_t segment = 0; segment < end; segment++) {
		if (pack_file(store, name, LOG_DATA, segment, stop, err) < 0)
			return -1;
	}
	return 0;
}

static int pack_ended(struct runlog_store *store, const char *name, const atomic_bool *stop,
		      struct error *err)
{
	struct stat st;
	_cleanup_free_ char *index = log_path(name, LOG_INDEX, 0, FORM_PLAIN);

	if (!is_worth_it(store, name))
		return 0;

	int64_t size = log_data_size(store, name, err);

	if (size < 0 || pack_segments(store, name, size / store->segment_bytes + 1, stop, err) < 0)
		return -1;
	if (fstatat(store->dirfd, index, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_size < PACK_MIN_BYTES)
		return 0;
	return pack_file(store, name, LOG_INDEX, 0, stop, err);
}

int runlog_pack(struct runlog_store *store, const char *name, const atomic_bool *stop,
		struct error *err)
{
	_cleanup_error_ struct error busy = { 0 };

	if (log_name_check(name, err) < 0)
		return -1;

	struct log_state *topic = log_state_get(store, name);
	int r = 0;

	if (log_state_claim(topic, &busy) == 0) {
		r = pack_ended(store, name, stop, err);
		log_state_unclaim(topic);
	} else if (log_state_is_live(topic)) {
		/* Kept bytes may be fewer than `end`; segments that are not there are passed. */
		int64_t end = __atomic_load_n(&topic->end, __ATOMIC_ACQUIRE);

		r = pack_segments(store, name, end / store->segment_bytes - WRITER_SEGMENTS + 1,
				  stop, err);
	}
	log_state_put(topic);
	return r;
}
