#include "runlog/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"

/*
 * A child that writes byte by byte makes an index 32 times its data. The bound of a log holds for
 * the index as well, but never so low that a small log could not hold its chunks.
 */
#define INDEX_BYTES_MIN ((int64_t)1 << 20)

/*
 * Output never takes the last of the disk: the database needs it to record how the command ended,
 * and everybody else's work with it.
 */
#define DISK_RESERVE_BYTES ((int64_t)8 << 20)
#define DISK_LOOK_BYTES ((int64_t)256 << 10) /* how much is written between two looks */

struct runlog {
	struct log_state *topic;
	struct memory_log *held; /* the topic's; NULL: it is in files */
	int data_fd, index_fd;
	pthread_mutex_t lock; /* one writer, yet several threads of it; held over its own writes */
	int64_t segment;      /* of the data that data_fd is */
	int64_t records;
	int64_t kept;        /* where the next chunk goes in the data */
	struct record total; /* the last record's totals, and what was dropped since */
	int64_t marked;      /* total.end as the last mark has it */
	int64_t look_at;     /* value of kept at which the disk is looked at again */
	bool truncated;
	bool names_synced;
};

static void publish_end(struct runlog *log)
{
	__atomic_store_n(&log->topic->end, log->total.end, __ATOMIC_RELEASE);
}

/* Moves on to another file of data; what is left behind is on disk before. */
static int enter_segment(struct runlog *log, int64_t segment, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (log_file_open(log->topic->store, log->topic->name, LOG_DATA, segment, O_RDWR | O_CREAT,
			  &fd, err) < 0)
		return -1;
	if (segment > log->segment && (fdatasync(log->data_fd) < 0 || fdatasync(log->index_fd) < 0))
		return error_errno(err, errno, "sync log %s", log->topic->name);
	close(log->data_fd);
	log->data_fd = steal_fd(&fd);
	log->segment = segment;
	log->names_synced = false;
	return 0;
}

/* A log that was packed, or is longer than a segment: the writer goes on in its last one. */
static int find_end(struct runlog *log, int64_t data_size, struct error *err)
{
	struct runlog_store *store = log->topic->store;
	int64_t segment = log->kept / store->segment_bytes;

	if (data_size >= store->segment_bytes &&
	    log_data_remove(store, log->topic->name, segment + 1, err) < 0)
		return -1;
	if (segment == log->segment)
		return 0;
	if (log_unpack(store, log->topic->name, LOG_DATA, segment, err) < 0)
		return -1;
	return enter_segment(log, segment, err);
}

static int check_disk(struct runlog *log, struct error *err)
{
	if (log->kept < log->look_at)
		return 0;

	int64_t bytes = dir_free_bytes(log->topic->store->dirfd);

	if (bytes >= 0 && bytes < DISK_RESERVE_BYTES)
		return error_set(err, ERR_DISK_FULL, "log %s: less than %lld MiB of disk are left",
				 log->topic->name, (long long)(DISK_RESERVE_BYTES >> 20));
	log->look_at = log->kept + DISK_LOOK_BYTES;
	return 0;
}

static void go_on_at(struct runlog *log, const struct log_tail *tail)
{
	log->records = tail->records;
	log->kept = tail->kept;
	log->total = tail->last;
	log->truncated = tail->last.mark;
	log->marked = tail->last.mark ? tail->last.end : 0;
}

static int recover(struct runlog *log, struct error *err)
{
	struct runlog_store *store = log->topic->store;
	struct source index = { .fd = log->index_fd }, first = { .fd = log->data_fd };
	struct log_tail tail;
	int64_t data_size = source_size(&first, err);

	if (data_size >= store->segment_bytes)
		data_size = log_data_size(store, log->topic->name, err);
	if (data_size < 0 || log_tail_find(&index, data_size, &tail, err) < 0)
		return -1;
	go_on_at(log, &tail);
	/* Index first: were we to die in between, no record would point at data that is gone. */
	if (ftruncate(log->index_fd, (off_t)(tail.records * RECORD_SIZE)) < 0)
		return error_errno(err, errno, "cut the ragged end of a log");
	if (find_end(log, data_size, err) < 0)
		return -1;
	if (ftruncate(log->data_fd, (off_t)(tail.kept - log->segment * store->segment_bytes)) < 0)
		return error_errno(err, errno, "cut the ragged end of a log");
	publish_end(log);
	return 0;
}

static void log_free(struct runlog *log)
{
	close_fdp(&log->data_fd);
	close_fdp(&log->index_fd);
	pthread_mutex_destroy(&log->lock);
	log_state_unclaim(log->topic);
	log_state_put(log->topic);
	free(log);
}

/* All of one file. What an attempt that failed left of it is gone. */
static int write_held(struct runlog *log, enum log_file which, int *fd, struct error *err)
{
	const struct buf *bytes = &log->held->part[which];
	_cleanup_close_ int made = -1;

	if (log_file_open(log->topic->store, log->topic->name, which, 0, O_RDWR | O_CREAT | O_TRUNC,
			  &made, err) < 0 ||
	    fd_pwrite_all(made, bytes->data, bytes->len, 0, err) < 0)
		return error_wrap(err, "log %s", log->topic->name);
	*fd = steal_fd(&made);
	return 0;
}

/* From memory to files. Only the writer changes what is held, so it can be read without its lock.
 */
static int move_to_files(struct runlog *log, struct error *err)
{
	_cleanup_close_ int data_fd = -1;

	if (log->kept > 0 && check_disk(log, err) < 0)
		return -1;
	if (write_held(log, LOG_DATA, &data_fd, err) < 0 ||
	    write_held(log, LOG_INDEX, &log->index_fd, err) < 0)
		return -1;
	log->data_fd = steal_fd(&data_fd);
	log->held = NULL;
	log_state_release(log->topic, true);
	return 0;
}

/* A log that was closed while it was in memory goes on there. */
static int recall(struct runlog *log, struct error *err)
{
	struct source index = { .fd = -1, .held = log->held, .which = LOG_INDEX };
	struct log_tail tail;

	if (log_tail_find(&index, memory_log_size(log->held, LOG_DATA), &tail, err) < 0)
		return -1;
	go_on_at(log, &tail);
	publish_end(log);
	return 0;
}

static int make_files(struct runlog *log, struct error *err)
{
	struct runlog_store *store = log->topic->store;
	const char *name = log->topic->name;

	if (log->held)
		return move_to_files(log, err);
	/* Of a packed log the first segment always is, so it is unpacked last; nothing empty may be
	 * made beside a packed file. */
	if (log_file_exists(store, name, LOG_DATA, 0, FORM_PACKED) &&
	    (log_unpack(store, name, LOG_INDEX, 0, err) < 0 ||
	     log_unpack(store, name, LOG_DATA, 0, err) < 0))
		return -1;
	if (log_file_open(store, name, LOG_DATA, 0, O_RDWR | O_CREAT, &log->data_fd, err) < 0 ||
	    log_file_open(store, name, LOG_INDEX, 0, O_RDWR | O_CREAT, &log->index_fd, err) < 0)
		return -1;
	return recover(log, err);
}

static int hold(struct runlog *log, struct error *err)
{
	(void)err;
	if (log->held)
		return 0;
	log->held = memory_log_new(log->topic->store);
	log_state_hold(log->topic, log->held);
	return 0;
}

/* What is there already, be it the data of a log that never got its index; else in memory. */
static int find_files(struct runlog *log, struct error *err)
{
	struct runlog_store *store = log->topic->store;
	const char *name = log->topic->name;

	if (log->held)
		return 0;
	if (!log_file_exists(store, name, LOG_DATA, 0, FORM_PLAIN) &&
	    !log_file_exists(store, name, LOG_DATA, 0, FORM_PACKED))
		return hold(log, err);
	return make_files(log, err);
}

static bool is_made(const struct runlog *log)
{
	return log->index_fd >= 0;
}

typedef int open_files_fn(struct runlog *log, struct error *err);

static int open_log(struct runlog_store *store, const char *name, open_files_fn *open_files,
		    struct runlog **out, struct error *err)
{
	*out = NULL;
	if (log_name_check(name, err) < 0)
		return -1;

	struct log_state *topic = log_state_get(store, name);

	if (log_state_claim(topic, err) < 0) {
		log_state_put(topic);
		return -1;
	}

	struct runlog *log = xcalloc(1, sizeof(*log));

	log->topic = topic;
	log->data_fd = log->index_fd = -1;
	pthread_mutex_init(&log->lock, NULL);
	/* A closed log that is in memory: whoever has claimed it is the only one to change that. */
	log->held = topic->held;
	if ((log->held && recall(log, err) < 0) || open_files(log, err) < 0) {
		log_free(log);
		return -1;
	}
	log_state_set_live(topic, true);
	*out = log;
	return 0;
}

int runlog_open(struct runlog_store *store, const char *name, struct runlog **out,
		struct error *err)
{
	return open_log(store, name, make_files, out, err);
}

int runlog_open_later(struct runlog_store *store, const char *name, struct runlog **out,
		      struct error *err)
{
	return open_log(store, name, find_files, out, err);
}

int runlog_open_new(struct runlog_store *store, const char *name, struct runlog **out,
		    struct error *err)
{
	return open_log(store, name, hold, out, err);
}

int runlog_make(struct runlog *log, struct error *err)
{
	pthread_mutex_lock(&log->lock);

	int rc = is_made(log) ? 0 : make_files(log, err);

	pthread_mutex_unlock(&log->lock);
	return rc;
}

static int write_record(struct runlog *log, const struct record *record, struct error *err)
{
	unsigned char bytes[RECORD_SIZE];

	record_encode(record, bytes);
	if (log->held)
		memory_log_append(log->held, LOG_INDEX, bytes, sizeof(bytes));
	else if (fd_pwrite_all(log->index_fd, bytes, sizeof(bytes),
			       (off_t)(log->records * RECORD_SIZE), err) < 0)
		return error_wrap(err, "log %s", log->topic->name);
	log->records++;
	return 0;
}

static void add_to_total(struct record *total, enum runlog_stream stream, int64_t len,
			 int64_t now_ms)
{
	total->end += len;
	if (stream == RUNLOG_STDOUT)
		total->out += len;
	else if (stream == RUNLOG_STDERR)
		total->err += len;
	total->stream = (uint8_t)stream;
	total->time_ms = now_ms > 0 ? now_ms : 0;
}

/* How much of `len` more bytes the log still takes. */
static int64_t room_for(const struct runlog *log, int64_t len)
{
	int64_t max = log->topic->store->max_bytes;

	if (log->truncated)
		return 0;
	if (max == 0)
		return len;
	/* The mark has to fit as well. */
	if ((log->records + 2) * RECORD_SIZE > MAX_OF(max, INDEX_BYTES_MIN))
		return 0;
	return MIN_OF(len, MAX_OF(max - log->kept, 0));
}

/* What a failed write left behind `kept` is overwritten by the next one. */
static int write_data(struct runlog *log, const char *data, int64_t len, struct error *err)
{
	int64_t size = log->topic->store->segment_bytes, at = log->kept;

	if (log->held) {
		memory_log_append(log->held, LOG_DATA, data, (size_t)len);
		return 0;
	}
	while (len) {
		int64_t n = MIN_OF(len, size - at % size);

		if (at / size != log->segment && enter_segment(log, at / size, err) < 0)
			return -1;
		if (fd_pwrite_all(log->data_fd, data, (size_t)n, (off_t)(at % size), err) < 0)
			return error_wrap(err, "log %s", log->topic->name);
		data += n;
		at += n;
		len -= n;
	}
	return 0;
}

static int keep(struct runlog *log, enum runlog_stream stream, const void *data, int64_t len,
		int64_t now_ms, struct error *err)
{
	struct record record = log->total;

	if (!log->held && check_disk(log, err) < 0)
		return -1;
	add_to_total(&record, stream, len, now_ms);
	if (write_data(log, data, len, err) < 0 || write_record(log, &record, err) < 0)
		return -1;
	log->total = record;
	log->kept += len;
	return 0;
}

static int drop(struct runlog *log, enum runlog_stream stream, int64_t len, int64_t now_ms,
		struct error *err)
{
	struct record record = log->total;

	add_to_total(&record, stream, len, now_ms);
	record.mark = true;
	if (!log->truncated) {
		if (write_record(log, &record, err) < 0)
			return -1;
		log->marked = record.end;
		log->truncated = true;
	}
	log->total = record;
	return 0;
}

static int append_locked(struct runlog *log, enum runlog_stream stream, const void *data,
			 int64_t len, int64_t now_ms, struct error *err)
{
	int64_t fits = room_for(log, len);

	if (log->held && !memory_log_take_room(log->held, fits + 2 * RECORD_SIZE) &&
	    make_files(log, err) < 0)
		return -1;
	if (fits > 0 && keep(log, stream, data, fits, now_ms, err) < 0)
		return -1;
	if (fits < len && drop(log, stream, len - fits, now_ms, err) < 0)
		return -1;
	return 0;
}

int runlog_append(struct runlog *log, enum runlog_stream stream, const void *data, size_t len,
		  int64_t now_ms, struct error *err)
{
	if (stream < RUNLOG_STDOUT || stream > RUNLOG_PTY)
		return error_set(err, ERR_INTERNAL, "a log has no stream %d", (int)stream);
	if (len == 0)
		return 0;
	pthread_mutex_lock(&log->lock);

	int rc = -1;

	if (len > (size_t)(INT64_MAX - log->total.end)) {
		error_set(err, ERR_TOO_LARGE, "log %s is full", log->topic->name);
	} else {
		rc = append_locked(log, stream, data, (int64_t)len, now_ms, err);
		publish_end(log);
	}
	pthread_mutex_unlock(&log->lock);
	log_state_wake(log->topic);
	return rc;
}

int64_t runlog_end(const struct runlog *log)
{
	return __atomic_load_n(&log->topic->end, __ATOMIC_ACQUIRE);
}

/* A file that was just made survives a power cut only once its directories are on disk. */
static int sync_names(struct runlog *log, struct error *err)
{
	_cleanup_close_ int fan_fd = -1;
	char fan[FAN_SIZE];

	log_fan(log->topic->name, fan);
	if (dir_open(log->topic->store->dirfd, fan, &fan_fd, err) < 0 ||
	    dir_sync(fan_fd, err) < 0 || dir_sync(log->topic->store->dirfd, err) < 0)
		return -1;
	log->names_synced = true;
	return 0;
}

/* The count of what was dropped since the last mark. */
static int write_mark(struct runlog *log, struct error *err)
{
	if (!log->truncated || log->total.end == log->marked)
		return 0;
	if (write_record(log, &log->total, err) < 0)
		return -1;
	log->marked = log->total.end;
	return 0;
}

static int sync_locked(struct runlog *log, struct error *err)
{
	if ((!is_made(log) && make_files(log, err) < 0) || write_mark(log, err) < 0)
		return -1;
	if (fdatasync(log->data_fd) < 0 || fdatasync(log->index_fd) < 0)
		return error_errno(err, errno, "sync log %s", log->topic->name);
	return log->names_synced ? 0 : sync_names(log, err);
}

int runlog_sync(struct runlog *log, struct error *err)
{
	pthread_mutex_lock(&log->lock);

	int rc = sync_locked(log, err);

	pthread_mutex_unlock(&log->lock);
	return rc;
}

void runlog_close(struct runlog *log)
{
	if (!log)
		return;

	struct log_state *topic = log->topic;

	/* Without this mark only the count of what was dropped is lost. */
	write_mark(log, NULL);
	/* An empty one is as good as none. */
	if (log->held && (log->records == 0 || atomic_load(&topic->store->closed)))
		log_state_release(topic, false);
	log_state_set_live(topic, false);
	log_free(log);
}

int64_t runlog_settle(struct runlog_store *store, const char *name, struct error *err)
{
	struct runlog *log;
	int64_t end = -1;

	if (runlog_size(store, name) < 0)
		return error_set(err, ERR_NOT_FOUND, "there is no log %s", name);
	if (runlog_open(store, name, &log, err) < 0)
		return -1;
	if (runlog_sync(log, err) == 0)
		end = runlog_end(log);
	runlog_close(log);
	return end;
}
