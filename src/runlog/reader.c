#include "runlog/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"

/* Idle followers are many and keep little: records by the handful, data only while it flows. */
#define RECORDS_AHEAD 64
#define DATA_AHEAD ((int64_t)16384)
#define CHUNK_MAX ((size_t)1 << 20)

struct runlog_reader {
	struct topic *topic;
	struct follower follower;
	int data_fd, index_fd;
	int64_t position;     /* the next byte to give */
	int64_t next;         /* number of the record it lies in */
	struct record before; /* the record before that one */
	int64_t data_size;    /* as last looked at */
	bool truncated;       /* the mark was given; nothing follows it */
	int64_t ahead_first;  /* numbers of the records in `ahead` */
	int64_t ahead_count;
	unsigned char ahead[RECORDS_AHEAD][RECORD_SIZE];
	char *data; /* bytes [data_start, data_start + data_len) of the data file */
	int64_t data_start, data_len, data_cap;
};

/* The first record that ends behind `since`: the one `since` lies in. */
static int seek(struct runlog_reader *r, int64_t since, struct error *err)
{
	struct stat st;
	struct record record;
	int rc;

	if (fstat(r->index_fd, &st) < 0)
		return error_errno(err, errno, "look at log %s", r->topic->name);

	int64_t low = 0, high = st.st_size / RECORD_SIZE;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		rc = record_read(r->index_fd, middle, &record, err);
		if (rc < 0)
			return -1;
		if (rc == 0 || record.end > since)
			high = middle;
		else
			low = middle + 1;
	}
	/* Of several marks the first one is where the kept output ends. */
	for (; low > 0; low--) {
		rc = record_read(r->index_fd, low - 1, &r->before, err);
		if (rc < 0)
			return -1;
		if (rc > 0 && !r->before.mark)
			break;
	}
	if (low == 0)
		r->before = (struct record){ 0 };
	r->next = low;
	r->position = since;
	return 0;
}

int runlog_reader_open(struct runlog_store *store, const char *name, int64_t since,
		       struct runlog_reader **out, struct error *err)
{
	_cleanup_close_ int data_fd = -1, index_fd = -1, event_fd = -1;

	*out = NULL;
	if (since < 0)
		return error_set(err, ERR_VALIDATION, "a log has no offset %lld", (long long)since);
	if (log_file_open(store, name, LOG_INDEX, O_RDONLY, &index_fd, err) < 0 ||
	    log_file_open(store, name, LOG_DATA, O_RDONLY, &data_fd, err) < 0)
		return -1;
	event_fd = latch_new(err);
	if (event_fd < 0)
		return -1;

	struct runlog_reader *r = xcalloc(1, sizeof(*r));

	r->topic = topic_get(store, name);
	r->data_fd = steal_fd(&data_fd);
	r->index_fd = steal_fd(&index_fd);
	r->follower.event_fd = steal_fd(&event_fd);
	topic_follow(r->topic, &r->follower);
	if (seek(r, since, err) < 0) {
		runlog_reader_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

/* 1 and the next record, 0 when there is none that can be used yet, -1. */
static int next_record(struct runlog_reader *r, struct record *record, struct error *err)
{
	if (r->next >= r->ahead_first + r->ahead_count) {
		ssize_t n;

		do
			n = pread(r->index_fd, r->ahead, sizeof(r->ahead),
				  (off_t)(r->next * RECORD_SIZE));
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return error_errno(err, errno, "read the index of log %s", r->topic->name);
		r->ahead_first = r->next;
		r->ahead_count = n / RECORD_SIZE;
		if (r->ahead_count == 0)
			return 0;
	}
	if (!record_decode(r->ahead[r->next - r->ahead_first], record) ||
	    record->end < r->before.end)
		goto not_sound;
	if (record->mark || record->end <= r->data_size)
		return 1;

	struct stat st;

	if (fstat(r->data_fd, &st) < 0)
		return error_errno(err, errno, "look at log %s", r->topic->name);
	r->data_size = st.st_size;
	if (record->end <= r->data_size)
		return 1;
not_sound:
	/* Left by a crash: the next writer will cut it off, so it must be read again then. */
	r->ahead_count = 0;
	return 0;
}

/* The same, past records that end before the position. */
static int next_unread(struct runlog_reader *r, struct record *record, struct error *err)
{
	int rc = 0;

	while (!r->truncated && (rc = next_record(r, record, err)) > 0) {
		if (record->mark || record->end > r->position)
			return 1;
		r->before = *record;
		r->next++;
	}
	return rc;
}

/* Has the bytes from `offset` in r->data: at least `len`, some more when they are there anyway. */
static int fetch(struct runlog_reader *r, int64_t offset, int64_t len, struct error *err)
{
	if (offset >= r->data_start && offset + len <= r->data_start + r->data_len)
		return 0;

	int64_t want = MIN_OF(MAX_OF(len, DATA_AHEAD), r->data_size - offset);

	if (want > r->data_cap) {
		r->data = xrealloc(r->data, (size_t)want);
		r->data_cap = want;
	}
	r->data_start = offset;
	r->data_len = 0;
	while (r->data_len < len) {
		ssize_t n = pread(r->data_fd, r->data + r->data_len, (size_t)(want - r->data_len),
				  (off_t)(offset + r->data_len));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO, "read log %s", r->topic->name);
		r->data_len += n;
	}
	return 0;
}

static void drop_data(struct runlog_reader *r)
{
	free(r->data);
	r->data = NULL;
	r->data_start = r->data_len = r->data_cap = 0;
}

static void give_mark(struct runlog_reader *r, const struct record *record,
		      struct runlog_chunk *chunk)
{
	*chunk = (struct runlog_chunk){
		.stream = (enum runlog_stream)record->stream,
		.offset = r->before.end,
		.stream_offset = record_stream_total(&r->before, record->stream),
		.time_ms = record->time_ms,
		.data = "",
		.truncated = true,
	};
	r->truncated = true;
}

int runlog_read(struct runlog_reader *r, size_t max, struct runlog_chunk *chunk, struct error *err)
{
	struct record record;
	int rc = next_unread(r, &record, err);

	if (rc <= 0) {
		drop_data(r);
		return rc;
	}
	if (record.mark) {
		give_mark(r, &record, chunk);
		return 1;
	}

	int64_t from = MAX_OF(r->position, r->before.end);
	int64_t len = MIN_OF(record.end - from, (int64_t)MIN_OF(MAX_OF(max, 1), CHUNK_MAX));

	if (fetch(r, from, len, err) < 0)
		return -1;
	*chunk = (struct runlog_chunk){
		.stream = (enum runlog_stream)record.stream,
		.offset = from,
		.stream_offset = record_stream_total(&record, record.stream) - (record.end - from),
		.time_ms = record.time_ms,
		.len = (size_t)len,
		.data = r->data + (from - r->data_start),
	};
	r->position = from + len;
	return 1;
}

int runlog_read_stretch(struct runlog_reader *r, int64_t max, struct runlog_stretch *stretch,
			struct error *err)
{
	struct record record;
	int64_t begin = -1;
	int rc;

	while ((rc = next_unread(r, &record, err)) > 0 && !record.mark) {
		int64_t from = MAX_OF(r->position, r->before.end);

		if (begin < 0)
			begin = from;
		r->position = MIN_OF(record.end, begin + MAX_OF(max, 1));
		if (r->position < record.end || r->position == begin + max)
			break;
	}
	if (rc < 0)
		return -1;
	if (begin < 0 && rc > 0)
		r->truncated = true;
	*stretch =
		(struct runlog_stretch){ r->data_fd, begin, begin < 0 ? 0 : r->position - begin };
	return begin >= 0 || rc > 0;
}

/*
 * Output that came between the caller's last runlog_read and the writer's close is still unread, so
 * it counts as more to come: a loop of "read, and stop when not live" then never loses the end.
 */
bool runlog_is_live(struct runlog_reader *r)
{
	struct record record;

	if (topic_is_live(r->topic))
		return true;
	return next_unread(r, &record, NULL) > 0;
}

int runlog_reader_event(struct runlog_reader *r)
{
	return r->follower.event_fd;
}

void runlog_reader_close(struct runlog_reader *r)
{
	if (!r)
		return;
	topic_unfollow(r->topic, &r->follower);
	close_fdp(&r->follower.event_fd);
	close_fdp(&r->data_fd);
	close_fdp(&r->index_fd);
	topic_put(r->topic);
	drop_data(r);
	free(r);
}
