#include "runlog/layout.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "runlog/log_file.h"

/* Leaves room for the suffixes within the 255 bytes of a file name. */
#define NAME_MAX_BYTES 200

void record_encode(const struct record *r, unsigned char out[RECORD_SIZE])
{
	uint64_t tag = (uint64_t)r->time_ms << 8 | r->stream | (r->mark ? RECORD_MARK : 0);
	uint64_t words[4] = { htole64((uint64_t)r->end), htole64((uint64_t)r->out),
			      htole64((uint64_t)r->err), htole64(tag) };

	memcpy(out, words, RECORD_SIZE);
}

bool record_decode(const unsigned char in[RECORD_SIZE], struct record *r)
{
	uint64_t words[4];

	memcpy(words, in, RECORD_SIZE);

	uint64_t end = le64toh(words[0]), out = le64toh(words[1]), err = le64toh(words[2]);
	uint64_t tag = le64toh(words[3]);
	uint8_t stream = (uint8_t)(tag & 0xff & ~RECORD_MARK);

	if (end > INT64_MAX || out > end || err > end - out)
		return false;
	if (stream < RUNLOG_STDOUT || stream > RUNLOG_PTY)
		return false;
	*r = (struct record){
		.end = (int64_t)end,
		.out = (int64_t)out,
		.err = (int64_t)err,
		.time_ms = (int64_t)(tag >> 8),
		.stream = stream,
		.mark = (tag & RECORD_MARK) != 0,
	};
	return true;
}

int64_t record_stream_total(const struct record *r, uint8_t stream)
{
	switch (stream) {
	case RUNLOG_STDOUT:
		return r->out;
	case RUNLOG_STDERR:
		return r->err;
	default:
		return r->end - r->out - r->err;
	}
}

int record_read(struct source *index, int64_t number, struct record *record, struct error *err)
{
	unsigned char bytes[RECORD_SIZE];
	ssize_t n = source_read(index, bytes, sizeof(bytes), number * RECORD_SIZE, err);

	if (n < 0)
		return -1;
	return n == RECORD_SIZE && record_decode(bytes, record);
}

/*
 * From the end backwards: usually the first look is enough; after a crash the records whose data
 * did not reach the disk, and behind a truncated log its few marks, are stepped over.
 */
int log_tail_find(struct source *index, int64_t data_size, struct log_tail *tail, struct error *err)
{
	int64_t index_size = source_size(index, err);
	bool have_last = false;

	*tail = (struct log_tail){ 0 };
	if (index_size < 0)
		return -1;
	tail->records = index_size / RECORD_SIZE;
	for (int64_t i = tail->records; i > 0; i--) {
		struct record r = { 0 };
		int rc = record_read(index, i - 1, &r, err);

		if (rc < 0)
			return -1;
		if (rc == 0 || (!r.mark && r.end > data_size)) {
			tail->records = i - 1;
			have_last = false;
			continue;
		}
		if (!have_last)
			tail->last = r;
		have_last = true;
		if (!r.mark) {
			tail->kept = r.end;
			return 0;
		}
	}
	if (!have_last)
		tail->last = (struct record){ 0 };
	return 0;
}

int log_name_check(const char *name, struct error *err)
{
	/* A leading dot would let the fan directory be "..". */
	if (!name || !path_is_segment(name) || name[0] == '.' ||
	    strnlen(name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES)
		return error_set(err, ERR_BAD_PATH, "not a name for a log");
	return 0;
}

void log_fan(const char *name, char fan[FAN_SIZE])
{
	/* Identifiers that begin with the time they were made end at random. */
	const char *from = id_is_ordered(name) ? name + ID_SIZE - FAN_SIZE : name;

	fan[0] = from[0];
	fan[1] = from[0] ? from[1] : '\0';
	fan[2] = '\0';
}

int log_file_open(struct runlog_store *store, const char *name, enum log_file which,
		  int64_t segment, int flags, int *fd, struct error *err)
{
	_cleanup_free_ char *path = NULL;
	char fan[FAN_SIZE];

	if (log_name_check(name, err) < 0)
		return -1;
	log_fan(name, fan);
	path = log_path(name, which, segment, FORM_PLAIN);
	flags |= O_CLOEXEC | O_NOFOLLOW;
	*fd = openat(store->dirfd, path, flags, 0600);
	if (*fd < 0 && errno == ENOENT && (flags & O_CREAT)) {
		if (mkdirat(store->dirfd, fan, 0700) < 0 && errno != EEXIST)
			return error_errno(err, errno, "make the directory of log %s", name);
		*fd = openat(store->dirfd, path, flags, 0600);
	}
	if (*fd >= 0)
		return 0;
	if (errno == ENOENT)
		return error_set(err, ERR_NOT_FOUND, "there is no log %s", name);
	return error_errno(err, errno, "open log %s", name);
}

/* In every form it may have. 1 when there was one. */
static int log_file_unlink(struct runlog_store *store, const char *name, enum log_file which,
			   int64_t segment, struct error *err)
{
	static const enum log_form FORMS[] = { FORM_PLAIN, FORM_PACKED, FORM_HALF };
	int found = 0;

	for (size_t i = 0; i < ARRAY_SIZE(FORMS); i++) {
		_cleanup_free_ char *path = log_path(name, which, segment, FORMS[i]);

		if (unlinkat(store->dirfd, path, 0) == 0)
			found = 1;
		else if (errno != ENOENT)
			return error_errno(err, errno, "remove log %s", name);
	}
	return found;
}

/* From the last one down: were we to die in between, the rest would still be found from 0 up. */
int log_data_remove(struct runlog_store *store, const char *name, int64_t from, struct error *err)
{
	int64_t last = from;

	while (log_file_exists(store, name, LOG_DATA, last + 1, FORM_PLAIN) ||
	       log_file_exists(store, name, LOG_DATA, last + 1, FORM_PACKED))
		last++;
	for (; last >= from; last--) {
		if (log_file_unlink(store, name, LOG_DATA, last, err) < 0)
			return -1;
	}
	return 0;
}

static int remove_files(struct runlog_store *store, const char *name, struct error *err)
{
	if (log_file_unlink(store, name, LOG_INDEX, 0, err) < 0)
		return -1;
	return log_data_remove(store, name, 0, err);
}

int runlog_remove(struct runlog_store *store, const char *name, struct error *err)
{
	if (log_name_check(name, err) < 0)
		return -1;

	struct log_state *topic = log_state_get(store, name);
	int rc = log_state_claim(topic, err);

	if (rc == 0) {
		if (!log_state_release(topic, false))
			rc = remove_files(store, name, err);
		log_state_unclaim(topic);
	}
	log_state_put(topic);
	return rc;
}

/* In memory or in a file. */
static int index_open(struct runlog_store *store, const char *name, struct source *index,
		      struct error *err)
{
	if (log_name_check(name, err) < 0)
		return -1;

	struct log_state *topic = log_state_get(store, name);
	struct memory_log *held = log_state_held(topic);

	log_state_put(topic);
	if (!held)
		return source_open(store, name, LOG_INDEX, 0, index, err);
	*index = source_of_memory(held, LOG_INDEX);
	return 0;
}

static int64_t size_of(struct runlog_store *store, const char *name, struct error *err)
{
	_cleanup_source_ struct source index = SOURCE_NONE;
	struct log_tail tail;
	int64_t data_size;

	if (index_open(store, name, &index, err) < 0)
		return -1;
	data_size = index.held ? memory_log_size(index.held, LOG_DATA)
			       : log_data_size(store, name, err);
	if (data_size < 0 || log_tail_find(&index, data_size, &tail, err) < 0)
		return -1;
	return tail.last.end;
}

int64_t runlog_size(struct runlog_store *store, const char *name)
{
	return size_of(store, name, NULL);
}

int64_t runlog_missing(struct runlog_store *store, const char *name, int64_t recorded)
{
	_cleanup_error_ struct error err = { 0 };
	int64_t size;

	if (recorded <= 0)
		return 0;
	size = size_of(store, name, &err);
	if (size < 0)
		return err.code == ERR_NOT_FOUND ? recorded : 0;
	return MAX_OF(recorded - size, 0);
}
