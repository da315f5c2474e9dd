#include "driver/fake/fake_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

#define JOURNAL_NAME "journal.jsonl"
#define JOURNAL_MAX (64u << 20)
#define MAX_PLACES 100000
#define MAX_COUNTERS 10000
/* A journal is written anew when it is this large and mostly history. */
#define COMPACT_BYTES (1 << 20)
#define COMPACT_FACTOR 4

/* An append whose fsync is still to come; belongs to the thread that waits for it. */
struct append {
	struct append *next;
	json_t *record;
	int64_t end; /* of its line in the file */
	bool settled;
	int failure; /* errno of the fsync, or 0 */
};

struct fake_journal {
	pthread_mutex_t lock; /* not held during fsync */
	pthread_cond_t settled;
	int dirfd, fd;
	int64_t written, synced; /* lengths of the file; what is between them may be lost */
	int64_t compact_at;
	bool syncing;
	struct append *waiting;
	json_t *places, *counters;
};

static int apply(struct fake_journal *j, const json_t *record)
{
	const char *op = json_str(record, "op"), *ref = json_str(record, "ref");
	const char *key = json_str(record, "key");

	if (str_equal(op, "acquire") && ref && json_object_at(record, "place"))
		json_put_ref(j->places, ref, json_object_at(record, "place"));
	else if (str_equal(op, "destroy") && ref)
		json_object_del(j->places, ref);
	else if (str_equal(op, "count") && key)
		json_put_int(j->counters, key,
			     MAX_OF(json_int(record, "n", 0), json_int(j->counters, key, 0)));
	else
		return -1;
	return 0;
}

static void put_line(struct buf *out, const json_t *record)
{
	_cleanup_free_ char *text = json_text(record);

	buf_puts(out, text);
	buf_putc(out, '\n');
}

static json_t *acquire_record(const char *ref, json_t *place)
{
	json_t *record = json_object();

	json_put_str(record, "op", "acquire");
	json_put_str(record, "ref", ref);
	json_put_ref(record, "place", place);
	return record;
}

static json_t *count_record(const char *key, int64_t n)
{
	json_t *record = json_object();

	json_put_str(record, "op", "count");
	json_put_str(record, "key", key);
	json_put_int(record, "n", n);
	return record;
}

static int open_file(struct fake_journal *j, struct error *err)
{
	int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC, fd = openat(j->dirfd, JOURNAL_NAME, flags);

	if (fd < 0 && errno == ENOENT) {
		fd = openat(j->dirfd, JOURNAL_NAME, flags | O_CREAT, 0600);
		if (fd >= 0 && dir_sync(j->dirfd, err) < 0) {
			close(fd);
			return -1;
		}
	}
	if (fd < 0)
		return error_errno(err, errno, "open %s of the fake provider", JOURNAL_NAME);
	close_fdp(&j->fd);
	j->fd = fd;
	return 0;
}

/* Writes what is true now in place of how it came to be. */
static int compact(struct fake_journal *j, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	const char *name;
	json_t *value;

	json_object_foreach (j->places, name, value) {
		_cleanup_json_ json_t *record = acquire_record(name, value);

		put_line(&text, record);
	}
	json_object_foreach (j->counters, name, value) {
		_cleanup_json_ json_t *record = count_record(name, json_integer_value(value));

		put_line(&text, record);
	}
	if (file_replace(j->dirfd, JOURNAL_NAME, buf_str(&text), text.len, 0600, err) < 0 ||
	    open_file(j, err) < 0)
		return -1;
	j->written = j->synced = (int64_t)text.len;
	return 0;
}

static void compact_if_large(struct fake_journal *j)
{
	_cleanup_error_ struct error problem = { 0 };

	if (j->written < j->compact_at)
		return;
	/* Not being able to shrink it is no reason to refuse what was asked for. */
	if (compact(j, &problem) < 0)
		log_warn("fake provider: cannot compact its journal: %s", problem.message);
	j->compact_at = MAX_OF(j->written * COMPACT_FACTOR, (int64_t)COMPACT_BYTES);
}

static int replay(struct fake_journal *j, const struct buf *text, struct error *err)
{
	size_t at = 0, line = 1;

	for (; at < text->len; line++) {
		const char *start = text->data + at;
		const char *end = memchr(start, '\n', text->len - at);
		_cleanup_json_ json_t *record =
			end ? json_parse(start, (size_t)(end - start), NULL) : NULL;
		bool last = !end || (size_t)(end + 1 - text->data) == text->len;

		if (!record || apply(j, record) < 0) {
			if (!last)
				return error_set(err, ERR_IO,
						 "%s of the fake provider is damaged at line %zu",
						 JOURNAL_NAME, line);
			break;
		}
		at = (size_t)(end + 1 - text->data);
	}
	j->written = j->synced = (int64_t)at;
	if (at < text->len && ftruncate(j->fd, (off_t)at) < 0)
		return error_errno(err, errno, "cut the torn end of %s", JOURNAL_NAME);
	return 0;
}

static int load(struct fake_journal *j, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (open_file(j, err) < 0)
		return -1;
	if (fd_read_all(j->fd, &text, JOURNAL_MAX, err) < 0)
		return error_wrap(err, "read %s of the fake provider", JOURNAL_NAME);
	if (replay(j, &text, err) < 0)
		return -1;
	j->compact_at = COMPACT_BYTES;
	compact_if_large(j);
	return 0;
}

int fake_journal_open(int dirfd, struct fake_journal **journal, struct error *err)
{
	struct fake_journal *j = xcalloc(1, sizeof(*j));

	j->fd = -1;
	j->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	j->places = json_object();
	j->counters = json_object();
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->settled, NULL);
	if (j->dirfd < 0)
		error_errno(err, errno, "keep the fake provider's directory open");
	if (j->dirfd < 0 || load(j, err) < 0) {
		fake_journal_free(j);
		return -1;
	}
	*journal = j;
	return 0;
}

void fake_journal_free(struct fake_journal *j)
{
	if (!j)
		return;
	close_fdp(&j->fd);
	close_fdp(&j->dirfd);
	json_decref(j->places);
	json_decref(j->counters);
	pthread_mutex_destroy(&j->lock);
	pthread_cond_destroy(&j->settled);
	free(j);
}

/* Takes from the list what the fsync that has just ended was about, and tells its waiters. */
static void settle(struct fake_journal *j, int64_t target, int failure)
{
	struct append **link = &j->waiting;

	while (*link) {
		struct append *a = *link;

		if (!failure && a->end > target) {
			link = &a->next;
			continue;
		}
		if (!failure)
			apply(j, a->record);
		a->failure = failure;
		a->settled = true;
		*link = a->next;
	}
	if (!failure) {
		j->synced = target;
	} else {
		/*
		 * After a failed fsync nobody can tell which of these bytes will survive: they are
		 * taken back, and so is everything written behind them.
		 */
		j->written = j->synced;
		if (ftruncate(j->fd, (off_t)j->synced) < 0)
			log_error("fake provider: cannot take back lines of its journal: %s",
				  strerror(errno));
	}
	if (!j->waiting && !failure)
		compact_if_large(j);
	pthread_cond_broadcast(&j->settled);
}

/* One thread syncs for everybody who has written by then; those who come meanwhile are next. */
static void wait_until_settled(struct fake_journal *j, struct append *a)
{
	a->next = j->waiting;
	j->waiting = a;
	while (!a->settled) {
		if (j->syncing) {
			pthread_cond_wait(&j->settled, &j->lock);
			continue;
		}

		int64_t target = j->written;

		j->syncing = true;
		pthread_mutex_unlock(&j->lock);

		int failure = fdatasync(j->fd) < 0 ? errno : 0;

		pthread_mutex_lock(&j->lock);
		j->syncing = false;
		settle(j, target, failure);
	}
}

/* With the lock held, these too. */
static int write_line(struct fake_journal *j, const json_t *record, struct error *err)
{
	_cleanup_buf_ struct buf line = { 0 };

	put_line(&line, record);
	if (j->written + (int64_t)line.len > (int64_t)JOURNAL_MAX)
		return error_set(err, ERR_DISK_FULL, "the fake provider's journal is full");
	/* Half a line that did not fit is written over by the next, or cut at the next start. */
	if (fd_pwrite_all(j->fd, line.data, line.len, (off_t)j->written, err) < 0)
		return error_wrap(err, "fake provider's journal");
	j->written += (int64_t)line.len;
	return 0;
}

static int append(struct fake_journal *j, json_t *record, struct error *err)
{
	_cleanup_free_ struct append *a = NULL;

	if (write_line(j, record, err) < 0)
		return -1;
	a = xcalloc(1, sizeof(*a));
	a->record = record;
	a->end = j->written;
	wait_until_settled(j, a);
	return a->failure ? error_errno(err, a->failure, "fsync of the fake provider's journal")
			  : 0;
}

int fake_journal_add(struct fake_journal *j, const char *ref, json_t *place, struct error *err)
{
	_cleanup_json_ json_t *record = acquire_record(ref, place);
	int r;

	pthread_mutex_lock(&j->lock);
	if (json_object_size(j->places) >= MAX_PLACES)
		r = error_set(err, ERR_UNAVAILABLE, "the fake provider has %d places, its limit",
			      MAX_PLACES);
	else
		r = append(j, record, err);
	pthread_mutex_unlock(&j->lock);
	return r;
}

int fake_journal_remove(struct fake_journal *j, const char *ref, struct error *err)
{
	_cleanup_json_ json_t *record = json_object();

	json_put_str(record, "op", "destroy");
	json_put_str(record, "ref", ref);
	pthread_mutex_lock(&j->lock);

	int r = json_object_get(j->places, ref) ? write_line(j, record, err) : 0;

	if (r == 0)
		apply(j, record);
	pthread_mutex_unlock(&j->lock);
	return r;
}

json_t *fake_journal_get(struct fake_journal *j, const char *ref)
{
	pthread_mutex_lock(&j->lock);

	/* A copy: what another thread removes meanwhile is freed by jansson without a barrier. */
	json_t *place = json_deep_copy(json_object_get(j->places, ref));

	pthread_mutex_unlock(&j->lock);
	return place;
}

json_t *fake_journal_places(struct fake_journal *j)
{
	pthread_mutex_lock(&j->lock);

	json_t *places = json_deep_copy(j->places);

	pthread_mutex_unlock(&j->lock);
	return places;
}

int64_t fake_journal_count(struct fake_journal *j, const char *key, struct error *err)
{
	int64_t n;

	pthread_mutex_lock(&j->lock);
	n = json_int(j->counters, key, 0) + 1;
	if (n == 1 && json_object_size(j->counters) >= MAX_COUNTERS) {
		error_set(err, ERR_UNAVAILABLE,
			  "the fake provider has %d fault counters, its limit", MAX_COUNTERS);
		n = -1;
	} else {
		_cleanup_json_ json_t *record = count_record(key, n);

		/* Taken at once: two calls that meet must not get the same number. */
		json_put_int(j->counters, key, n);
		if (append(j, record, err) < 0)
			n = -1;
	}
	pthread_mutex_unlock(&j->lock);
	return n;
}
