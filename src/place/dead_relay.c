/*
 * What a dead relay left: exits it had written down before anybody took them, with the output that
 * belongs to them (wire/place.h says how). The keeper keeps the files of a dead place for a while
 * for this. The bytes may be torn, and come from a program that lived beside hostile ones: nothing
 * in them is believed beyond what a relay could have said over its connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "place/places.h"

#define JOURNAL_MAX ((uint64_t)256 << 20)
#define PORTION (64u << 10)
#define DIALER_WAIT_MS 10000

struct salvage {
	struct exec *exec;
	int spool_fd;
	bool here;  /* the records being read are this exec's */
	bool found; /* `state` is its exit */
	struct wire_exec_state state;
};

/* Output of the exec at an offset: what the log has is left out, what is missing before it is a
 * hole. Returns 1 for bytes that cannot be, -1 when the server is going. */
static int take_at(struct salvage *s, uint32_t channel, uint64_t offset, const void *bytes,
		   uint32_t len, struct error *err)
{
	struct exec *exec = s->exec;
	uint64_t skip;

	if (channel >= WIRE_CHANNELS || offset > s->state.end_offset ||
	    len > s->state.end_offset - offset)
		return 1;
	if (offset + len <= exec->taken)
		return 0;
	if (offset > exec->taken && exec_store_hole(exec, offset - exec->taken, err) < 0)
		return -1;
	skip = exec->taken - offset;
	if (exec_store(exec, channel, (const uint8_t *)bytes + skip, len - skip, err) < 0)
		return -1;
	exec->taken += len - skip;
	return 0;
}

/* The directory of a place's relay, or one of the two answers of dialer.open_files. */
static int open_files(struct open_place *place, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };
	struct dialer *dialer;

	if (FAULT_HERE("channel.salvage", err) < 0)
		return DIALER_NOT_NOW;
	if (place_dialer(place, boottime_ms() + DIALER_WAIT_MS, &dialer, &why) < 0) {
		/* Commands of a place that was stopped must not wait until its host answers. */
		if (place_stopped(place) != NOT_STOPPED)
			return DIALER_NO_FILES;
		error_move(err, &why);
		error_recode(err, ERR_TIMEOUT);
		return DIALER_NOT_NOW;
	}
	return dialer->open_files ? dialer->open_files(dialer, place->id, err) : DIALER_NO_FILES;
}

/* As open_files, for a regular file there. */
static int open_regular(int dirfd, const char *name, struct error *err)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
		error_errno(err, errno, "reading what a relay left");
		return DIALER_NOT_NOW;
	}
	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		close_fdp(&fd);
	return fd >= 0 ? fd : DIALER_NO_FILES;
}

static int take_segment(struct salvage *s, int fd, uint64_t size, const uint8_t *segment,
			struct error *err)
{
	_cleanup_free_ uint8_t *bytes = xmalloc(PORTION);
	uint64_t offset = get_le64(segment), end = offset + get_le32(segment + 16);

	if (end < offset || end > s->state.end_offset || get_le32(segment + 20) >= WIRE_CHANNELS)
		return 1;
	/* What is not kept any more has been overwritten. */
	offset = MAX_OF(offset, MAX_OF(s->state.kept_offset, s->exec->taken));
	while (offset < end) {
		uint64_t at = offset % size;
		size_t want = (size_t)MIN_OF(MIN_OF(end - offset, size - at), (uint64_t)PORTION);
		ssize_t n = pread(fd, bytes, want, (off_t)at);
		int rc;

		if (n <= 0)
			return 1;
		rc = take_at(s, get_le32(segment + 20), offset, bytes, (uint32_t)n, err);
		if (rc != 0)
			return rc;
		offset += (uint64_t)n;
	}
	return 0;
}

static int take_ring(struct salvage *s, const struct wire_exec_ring *ring, struct error *err)
{
	_cleanup_free_ char *name = xasprintf(RELAY_RING_PREFIX "%s", s->exec->id);
	_cleanup_close_ int fd = open_regular(s->spool_fd, name, err);

	if (fd == DIALER_NOT_NOW)
		return -1;
	if (fd < 0 || ring->size < PLACE_RING_MIN || ring->size > PLACE_RING_MAX ||
	    ring->segments.len % RELAY_SEGMENT_SIZE != 0 ||
	    s->state.end_offset - s->state.kept_offset > ring->size)
		return 1;
	for (uint32_t at = 0; at < ring->segments.len; at += RELAY_SEGMENT_SIZE) {
		int rc = take_segment(s, fd, ring->size, ring->segments.data + at, err);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static int take_state(struct salvage *s, const struct wire_exec_state *state)
{
	s->here = memcmp(state->exec_id, s->exec->wire_id, WIRE_ID_SIZE) == 0 &&
		  state->state == WIRE_EXEC_EXITED;
	if (!s->here)
		return 0;
	/* The log never has more than was acknowledged or sent; holes are bounded as on the wire.
	 */
	if (state->end_offset < s->exec->taken || state->kept_offset > state->end_offset ||
	    state->end_offset - s->exec->taken > EXEC_LOST_MAX) {
		s->here = false;
		return 1;
	}
	s->exec->terminal = state->pty;
	s->state = *state;
	s->found = true;
	return 0;
}

/* 0: go on; 1: this and what follows is no journal; -1: as exec_from_dead_relay. */
static int take_record(void *arg, const struct frame *frame, struct error *err)
{
	struct salvage *s = arg;
	_cleanup_wire_message_ struct wire_message m = { 0 };

	if (frame->type == WIRE_OUTPUT) {
		if (frame->length < WIRE_OUTPUT_OVERHEAD)
			return 1;
		return s->here ? take_at(s, frame->flags, get_le64(frame->payload),
					 frame->payload + WIRE_OUTPUT_OVERHEAD,
					 frame->length - WIRE_OUTPUT_OVERHEAD, err)
			       : 0;
	}
	if (wire_decode(frame, &m, NULL) < 0)
		return 1;
	if (m.type == WIRE_EXEC_STATE)
		return take_state(s, &m.exec_state);
	if (m.type == WIRE_EXEC_RING)
		return s->here ? take_ring(s, &m.exec_ring, err) : 0;
	return 1;
}

/* Frame by frame, so that a journal of any size takes the memory of one frame. */
static int read_frames(int fd, journal_take_fn *take, void *arg, struct error *err)
{
	_cleanup_buf_ struct buf bytes = { 0 };
	uint64_t total = 0;
	ssize_t n = 1;

	while (n > 0 && total < JOURNAL_MAX) {
		struct frame frame;
		size_t used = 0;
		int rc = frame_parse((const uint8_t *)bytes.data, bytes.len, WIRE_PAYLOAD_MAX,
				     &frame, &used, NULL);

		if (rc < 0)
			return 0;
		if (rc > 0) {
			rc = take(arg, &frame, err);
			if (rc != 0)
				return rc < 0 ? -1 : 0;
			buf_consume(&bytes, used);
			continue;
		}
		buf_reserve(&bytes, PORTION);
		n = read(fd, bytes.data + bytes.len, PORTION);
		if (n > 0) {
			bytes.len += (size_t)n;
			total += (uint64_t)n;
		}
	}
	return 0;
}

static int read_journal_in(int dirfd, journal_take_fn *take, void *arg, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (dirfd < 0)
		return dirfd == DIALER_NOT_NOW ? -1 : 0;
	fd = open_regular(dirfd, RELAY_JOURNAL_FILE, err);
	if (fd < 0)
		return fd == DIALER_NOT_NOW ? -1 : 0;
	return read_frames(fd, take, arg, err);
}

int journal_read(struct open_place *place, journal_take_fn *take, void *arg, struct error *err)
{
	_cleanup_close_ int dirfd = open_files(place, err);

	return read_journal_in(dirfd, take, arg, err);
}

static void fill_result(struct exec *exec, const struct wire_exec_state *state)
{
	exec->result = (struct exec_result){
		.exit_code = state->signal ? -1 : (int)state->exit_code,
		.reason = reason_from_wire(state->reason),
		.duration_ms = (int64_t)MIN_OF(state->wall_us / 1000, (uint64_t)INT64_MAX),
		.stdout_bytes = (int64_t)MIN_OF(state->stdout_offset, (uint64_t)INT64_MAX),
		.stderr_bytes = (int64_t)MIN_OF(state->stderr_offset, (uint64_t)INT64_MAX),
	};
	signal_name((int)state->signal, exec->result.signal);
}

int exec_from_dead_relay(struct exec *exec, struct error *err)
{
	_cleanup_close_ int spool_fd = open_files(exec->place, err);
	struct salvage s = { .exec = exec, .spool_fd = spool_fd };

	if (read_journal_in(spool_fd, take_record, &s, err) < 0)
		return -1;
	if (!s.found)
		return 0;
	if (exec->taken < s.state.end_offset &&
	    exec_store_hole(exec, s.state.end_offset - exec->taken, err) < 0)
		return -1;
	fill_result(exec, &s.state);
	exec->salvaged = true;
	log_info("exec %s: its end was found in what its relay left", exec->id);
	return 1;
}
