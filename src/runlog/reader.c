#include "runlog/log_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fd.h"

/* Idle followers are many and keep little: records by the handful, data only while it flows. */
#define RECORDS_AHEAD 64
#define DATA_AHEAD ((int64_t)16384)
#define CHUNK_MAX ((size_t)1 << 20)

struct runlog_reader {
	struct log_state *topic;
	struct follower follower;
	struct source index, data;
	int64_t segment;      /* of the data that is open; -1: none */
	int64_t position;     /* the next byte to give */
	int64_t next;         /* number of the record it lies in */
	struct record before; /* the record before that one */
	int64_t data_size;    /* as last looked at */
	bool truncated;       /* the mark was given; nothing follows it */
	int64_t ahead_first;  /* numbers of the records in `ahead` */
	int64_t ahead_count;
	unsigned char ahead[RECORDS_AHEAD][RECORD_SIZE];
	int memory_fd; /* stretches of what is in no file; -1: none were asked for */
	char *bytes;   /* [data_start, data_start + data_len) of the log */
	int64_t data_start, data_len, data_cap;
};

/* The first record that ends behind `since`: the one `since` lies in. */
static int seek(struct runlog_reader *r, int64_t since, struct error *err)
{
	struct record record;
	int64_t size = source_size(&r->index, err);
	int rc;

	if (size < 0)
		return -1;

	int64_t low = 0, high = size / RECORD_SIZE;

	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		rc = record_read(&r->index, middle, &record, err);
		if (rc < 0)
			return -1;
		if (rc == 0 || record.end > since)
			high = middle;
		else
			low = middle + 1;
	}
	/* Of several marks the first one is where the kept output ends. */
	for (; low > 0; low--) {
		rc = record_read(&r->index, low - 1, &r->before, err);
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

static int open_files(struct runlog_reader *r, struct error *err)
{
	struct runlog_store *store = r->topic->store;
	_cleanup_source_ struct source index = SOURCE_NONE, data = SOURCE_NONE;

	if (source_open(store, r->topic->name, LOG_INDEX, 0, &index, err) < 0 ||
	    source_open(store, r->topic->name, LOG_DATA, 0, &data, err) < 0)
		return -1;
	source_close(&r->index);
	source_close(&r->data);
	r->index = index;
	r->data = data;
	index = data = SOURCE_NONE;
	return 0;
}

static int open_log(struct runlog_reader *r, struct error *err)
{
	struct memory_log *held = log_state_held(r->topic);

	if (!held)
		return open_files(r, err);
	r->index = source_of_memory(memory_log_ref(held), LOG_INDEX);
	r->data = source_of_memory(held, LOG_DATA);
	return 0;
}

/* Its files begin with the bytes that were in memory: whatever was counted of them still holds. */
static int follow_to_files(struct runlog_reader *r, struct error *err)
{
	if (!r->index.held || !memory_log_has_moved(r->index.held))
		return 0;
	return open_files(r, err);
}

int runlog_reader_open(struct runlog_store *store, const char *name, int64_t since,
		       struct runlog_reader **out, struct error *err)
{
	*out = NULL;
	if (since < 0)
		return error_set(err, ERR_VALIDATION, "a log has no offset %lld", (long long)since);
	if (log_name_check(name, err) < 0)
		return -1;

	struct runlog_reader *r = xcalloc(1, sizeof(*r));

	r->index = r->data = SOURCE_NONE;
	r->memory_fd = -1;
	r->topic = log_state_get(store, name);
	r->follower.event_fd = -1;
	log_state_follow(r->topic, &r->follower);
	/* Most logs are read when they are complete, and nobody waits for more. */
	if ((log_state_is_live(r->topic) && log_state_watch(r->topic, &r->follower, err) < 0) ||
	    open_log(r, err) < 0 || seek(r, since, err) < 0) {
		runlog_reader_close(r);
		return -1;
	}
	*out = r;
	return 0;
}

/* The segment of the byte at `offset`. */
static int open_segment(struct runlog_reader *r, int64_t offset, struct error *err)
{
	struct runlog_store *store = r->topic->store;
	int64_t segment = offset / store->segment_bytes;
	struct source source;

	if (segment == r->segment)
		return 0;
	if (source_open(store, r->topic->name, LOG_DATA, segment, &source, err) < 0)
		return -1;
	source_close(&r->data);
	r->data = source;
	r->segment = segment;
	return 0;
}

static int64_t segment_end(const struct runlog_reader *r, int64_t offset)
{
	int64_t size = r->topic->store->segment_bytes;

	return (offset / size + 1) * size;
}

/*
 * How far the data reaches, as far as a record that ends at `end` wants to know: a segment that is
 * there says that all before it are full.
 */
static int look_at_data(struct runlog_reader *r, int64_t end, struct error *err)
{
	struct runlog_store *store = r->topic->store;
	int64_t segment = (end - 1) / store->segment_bytes;
	_cleanup_source_ struct source other = SOURCE_NONE;
	_cleanup_error_ struct error why = { 0 };
	struct source *source = &r->data;

	if (segment != r->segment) {
		source = &other;
		if (source_open(store, r->topic->name, LOG_DATA, segment, &other, &why) < 0) {
			if (why.code == ERR_NOT_FOUND)
				return 0;
			error_move(err, &why);
			return -1;
		}
	}

	int64_t size = source_size(source, err);

	if (size < 0)
		return -1;
	r->data_size = segment * store->segment_bytes + MIN_OF(size, store->segment_bytes);
	return 0;
}

/* 1 and the next record, 0 when there is none that can be used yet, -1. */
static int next_record(struct runlog_reader *r, struct record *record, struct error *err)
{
	if (r->next >= r->ahead_first + r->ahead_count) {
		ssize_t n = source_read(&r->index, r->ahead, sizeof(r->ahead),
					r->next * RECORD_SIZE, err);

		if (n < 0)
			return error_wrap(err, "log %s", r->topic->name);
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

	if (look_at_data(r, record->end, err) < 0)
		return -1;
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

	if (follow_to_files(r, err) < 0)
		return -1;
	while (!r->truncated && (rc = next_record(r, record, err)) > 0) {
		if (record->mark || record->end > r->position)
			return 1;
		r->before = *record;
		r->next++;
	}
	return rc;
}

/* Has the bytes from `offset` in r->bytes: at least `len`, all of one segment, some more when they
 * are there anyway. */
static int fetch(struct runlog_reader *r, int64_t offset, int64_t len, struct error *err)
{
	if (offset >= r->data_start && offset + len <= r->data_start + r->data_len)
		return 0;

	int64_t want = MIN_OF(MAX_OF(len, DATA_AHEAD), r->data_size - offset);

	if (open_segment(r, offset, err) < 0)
		return -1;
	want = MIN_OF(want, segment_end(r, offset) - offset);
	if (want > r->data_cap) {
		r->bytes = xrealloc(r->bytes, (size_t)want);
		r->data_cap = want;
	}
	r->data_start = offset;
	r->data_len = 0;

	ssize_t n = source_read(&r->data, r->bytes, (size_t)want,
				offset % r->topic->store->segment_bytes, err);

	if (n >= 0 && n < len)
		error_set(err, ERR_IO, "it is shorter than its index says");
	if (n < len)
		return error_wrap(err, "log %s", r->topic->name);
	r->data_len = n;
	return 0;
}

static void drop_data(struct runlog_reader *r)
{
	free(r->bytes);
	r->bytes = NULL;
	if (r->data.pack)
		pack_rest(r->data.pack);
	if (r->index.pack)
		pack_rest(r->index.pack);
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

	len = MIN_OF(len, segment_end(r, from) - from);
	if (fetch(r, from, len, err) < 0)
		return -1;
	*chunk = (struct runlog_chunk){
		.stream = (enum runlog_stream)record.stream,
		.offset = from,
		.stream_offset = record_stream_total(&record, record.stream) - (record.end - from),
		.time_ms = record.time_ms,
		.len = (size_t)len,
		.data = r->bytes + (from - r->data_start),
	};
	r->position = from + len;
	return 1;
}

/* Where a stretch from `begin` on must end at the latest, and the file it lies in from `start`. */
static int stretch_file(struct runlog_reader *r, int64_t begin, int *fd, int64_t *start,
			int64_t *limit, struct error *err)
{
	int64_t size = r->topic->store->segment_bytes;
	struct pack_stretch frame;

	if (open_segment(r, begin, err) < 0)
		return -1;
	if (r->data.held && r->memory_fd < 0)
		r->memory_fd = memfd_create("berth-log", MFD_CLOEXEC);
	if (r->data.held && r->memory_fd < 0)
		return error_errno(err, errno, "make a file in memory");
	*fd = r->data.held ? r->memory_fd : r->data.fd;
	*start = begin / size * size;
	*limit = MIN_OF(*limit, *start + size);
	if (!r->data.pack)
		return 0;
	if (pack_frame(r->data.pack, begin - *start, &frame, err) < 0)
		return error_wrap(err, "log %s", r->topic->name);
	*fd = frame.fd;
	*start += frame.start;
	*limit = MIN_OF(*limit, *start + frame.len);
	return 0;
}

/* Bytes that are in no file get one that only this reader has. */
static int put_into_file(struct runlog_reader *r, const struct runlog_stretch *stretch,
			 struct error *err)
{
	char bytes[4096];

	for (int64_t at = 0; at < stretch->len;) {
		size_t want = (size_t)MIN_OF(stretch->len - at, (int64_t)sizeof(bytes));
		ssize_t n = source_read(&r->data, bytes, want, stretch->offset + at, err);

		if (n == 0)
			return error_set(err, ERR_IO, "log %s is shorter than its index says",
					 r->topic->name);
		if (n < 0 ||
		    fd_pwrite_all(r->memory_fd, bytes, (size_t)n, stretch->offset + at, err) < 0)
			return error_wrap(err, "log %s", r->topic->name);
		at += n;
	}
	return 0;
}

int runlog_read_stretch(struct runlog_reader *r, int64_t max, struct runlog_stretch *stretch,
			struct error *err)
{
	struct record record;
	int64_t begin = -1, start = 0, limit = 0;
	int rc, fd = -1;

	while ((rc = next_unread(r, &record, err)) > 0 && !record.mark) {
		if (begin < 0) {
			begin = MAX_OF(r->position, r->before.end);
			limit = begin + MAX_OF(max, 1);
			if (stretch_file(r, begin, &fd, &start, &limit, err) < 0)
				return -1;
		}
		r->position = MIN_OF(record.end, limit);
		if (r->position == limit)
			break;
	}
	if (rc < 0)
		return -1;
	if (begin < 0 && rc > 0)
		r->truncated = true;
	*stretch = (struct runlog_stretch){ fd, begin < 0 ? -1 : begin - start,
					    begin < 0 ? 0 : r->position - begin };
	if (fd >= 0 && fd == r->memory_fd && put_into_file(r, stretch, err) < 0)
		return -1;
	return begin >= 0 || rc > 0;
}

/*
 * Output that came between the caller's last runlog_read and the writer's close is still unread, so
 * it counts as more to come: a loop of "read, and stop when not live" then never loses the end.
 */
bool runlog_is_live(struct runlog_reader *r)
{
	struct record record;

	if (log_state_is_live(r->topic))
		return true;
	return next_unread(r, &record, NULL) > 0;
}

int runlog_reader_event(struct runlog_reader *r)
{
	/* Something may have come before there was an event for it. */
	if (r->follower.event_fd < 0 && log_state_watch(r->topic, &r->follower, NULL) == 0)
		latch_set(r->follower.event_fd);
	return r->follower.event_fd;
}

void runlog_reader_close(struct runlog_reader *r)
{
	if (!r)
		return;
	log_state_unfollow(r->topic, &r->follower);
	close_fdp(&r->follower.event_fd);
	close_fdp(&r->memory_fd);
	log_state_put(r->topic);
	drop_data(r);
	source_close(&r->data);
	source_close(&r->index);
	free(r);
}
