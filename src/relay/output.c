/*
 * Output on its way: pipe or terminal -> ring -> frames.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "relay/exec.h"
#include "relay/session.h"

#define STRETCH_MAX (64u << 10)
#define LITTLE 4096
#define MEMORY_LOG_RETRY_MS 1000
#define PIPE_DEFAULT (64u << 10)
#define PIPE_ENLARGED (512 << 10)

static void outlet_end(struct outlet *o)
{
	loop_unwatch(&o->exec->relay->loop, &o->watch);
	close_fdp(&o->fd);
	close_fdp(&o->held_end);
}

static void tell_stalled(struct exec *exec, bool stalled)
{
	struct session *s = exec->relay->session;

	if (exec->stalled == stalled)
		return;
	exec->stalled = stalled;
	exec->was_stalled |= stalled;
	if (!s || !exec->stream)
		return;
	session_send(s, exec->stream, WIRE_EXEC_STALLED,
		     &(struct wire_exec_stalled){ .stalled = stalled });
	session_flush(s);
}

/* A paused outlet is out of the loop: a closed pipe would wake it for ever. */
static void pause_outlets(struct exec *exec)
{
	for (size_t i = 0; i < OUTLETS; i++)
		loop_unwatch(&exec->relay->loop, &exec->outlet[i].watch);
	tell_stalled(exec, true);
}

static void held_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, held_timer);

	if (ring_append(&exec->ring, exec->held_channel, exec->held.data, exec->held.len, NULL) <
	    0) {
		loop_arm(&exec->relay->loop, timer, MEMORY_LOG_RETRY_MS);
		return;
	}
	buf_free(&exec->held);
	output_resume(exec);
	if (exec->relay->session)
		session_pump(exec->relay->session);
	exec_advance(exec);
}

/* The disk is full: the bytes are kept here and the process waits until there is room again. */
static void hold(struct exec *exec, enum wire_channel channel, const uint8_t *data, size_t len)
{
	buf_append(&exec->held, data, len);
	exec->held_channel = channel;
	exec->held_timer.due = held_due;
	loop_arm(&exec->relay->loop, &exec->held_timer, MEMORY_LOG_RETRY_MS);
	pause_outlets(exec);
}

static void outlet_ready(struct watch *watch, uint32_t events)
{
	struct outlet *o = container_of(watch, struct outlet, watch);
	struct exec *exec = o->exec;
	struct relay *relay = exec->relay;
	_cleanup_error_ struct error err = { 0 };
	size_t room = MIN_OF(ring_room(&exec->ring), RELAY_SCRATCH);
	uint8_t little[LITTLE], *data = little;
	ssize_t n;

	(void)events;
	if (room == 0) {
		pause_outlets(exec);
		return;
	}
	/* Most commands say little, many nothing: memory is for those that say more at once. */
	if (o->floods) {
		if (!relay->scratch)
			relay->scratch = xmalloc(RELAY_SCRATCH);
		data = relay->scratch;
	} else {
		room = MIN_OF(room, sizeof(little));
	}
	n = read(o->fd, data, room);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* A terminal whose other end is closed by all says EIO. */
	if (n <= 0) {
		outlet_end(o);
		exec_advance(exec);
		return;
	}
	if (ring_append(&exec->ring, o->channel, data, (size_t)n, &err) < 0) {
		if (!exec->disk_told)
			log_warn("exec %s: its output waits: %s", exec->id_text, err.message);
		exec->disk_told = true;
		hold(exec, o->channel, data, (size_t)n);
		return;
	}
	o->floods |= (size_t)n == sizeof(little);
	/* A flood is worth fewer and larger turns; a command that says little never pays for it. */
	if ((size_t)n == PIPE_DEFAULT && !exec->pty && !o->enlarged) {
		o->enlarged = true;
		fcntl(o->fd, F_SETPIPE_SZ, PIPE_ENLARGED);
	}
	if (relay->session && exec->stream)
		session_pump(relay->session);
}

int output_open(struct exec *exec, int outlet, int fd, enum wire_channel channel, struct error *err)
{
	struct outlet *o = &exec->outlet[outlet];

	o->fd = fd;
	o->channel = channel;
	o->watch.ready = outlet_ready;
	return loop_watch(&exec->relay->loop, &o->watch, fd, EPOLLIN, err);
}

void output_hold(struct exec *exec, int outlet, int child_end)
{
	exec->outlet[outlet].held_end = child_end;
}

void output_let_go(struct exec *exec)
{
	for (size_t i = 0; i < OUTLETS; i++) {
		struct outlet *o = &exec->outlet[i];

		if (o->held_end < 0)
			continue;
		close_fdp(&o->held_end);
		/* What it said last, and then its end, unless somebody else writes there. */
		for (int turn = 0; turn < 2 && o->watch.fd >= 0; turn++)
			outlet_ready(&o->watch, EPOLLIN);
	}
}

void output_close(struct exec *exec)
{
	for (size_t i = 0; i < OUTLETS; i++)
		outlet_end(&exec->outlet[i]);
	loop_disarm(&exec->relay->loop, &exec->held_timer);
	buf_free(&exec->held);
}

bool output_is_open(const struct exec *exec)
{
	for (size_t i = 0; i < OUTLETS; i++)
		if (exec->outlet[i].fd >= 0)
			return true;
	return exec->held.len > 0;
}

void output_resume(struct exec *exec)
{
	uint64_t wanted = MIN_OF(exec->ring.size / 4, (uint64_t)RELAY_SCRATCH);

	/* Waking for every acknowledged byte would make a crawl of it. */
	if (!exec->stalled || exec->held.len > 0 || ring_room(&exec->ring) < wanted)
		return;
	for (size_t i = 0; i < OUTLETS; i++) {
		struct outlet *o = &exec->outlet[i];

		if (o->fd >= 0 && o->watch.fd < 0)
			loop_watch(&exec->relay->loop, &o->watch, o->fd, EPOLLIN, NULL);
	}
	tell_stalled(exec, false);
}

void output_acknowledge(struct exec *exec, uint64_t offset)
{
	exec->acked = MAX_OF(exec->acked, offset);
	ring_release(&exec->ring, offset);
	/* What the disk does not take can be kept in memory now. */
	if (exec->held.len > 0 && exec->ring.begin == exec->ring.end)
		loop_arm(&exec->relay->loop, &exec->held_timer, 0);
	output_resume(exec);
}

static void send_truncated(struct exec *exec, struct session *s, uint64_t to)
{
	struct wire_exec_truncated m = { .from_offset = exec->sent, .to_offset = to };

	session_send(s, exec->stream, WIRE_EXEC_TRUNCATED, &m);
	exec->sent = to;
}

static void send_exit(struct exec *exec, struct session *s)
{
	struct wire_exec_state state;
	struct wire_exec_exit m;

	exec_describe(exec, &state);
	m = (struct wire_exec_exit){
		.exit_code = state.exit_code,
		.signal = state.signal,
		.reason = state.reason,
		.end_offset = state.end_offset,
		.stdout_offset = state.stdout_offset,
		.stderr_offset = state.stderr_offset,
		.wall_us = state.wall_us,
		.user_us = state.user_us,
		.sys_us = state.sys_us,
		.max_rss_kb = state.max_rss_kb,
	};
	session_send(s, exec->stream, WIRE_EXEC_EXIT, &m);
	exec->exit_sent = true;
	exec->stream = 0;
}

/* The bytes go from the ring straight behind the header in the connection's buffer. */
static int send_stretch(struct exec *exec, struct session *s, struct error *err)
{
	struct buf *out = &s->conn.out;
	size_t start = out->len;
	size_t max = (size_t)MIN_OF(exec->credit, (uint64_t)STRETCH_MAX);
	uint8_t offsets[WIRE_OUTPUT_OVERHEAD] = { 0 };
	enum wire_channel channel = WIRE_STDOUT;
	uint64_t channel_offset = 0;
	ssize_t n;

	max = (size_t)MIN_OF((uint64_t)max, exec->ring.end - exec->sent);
	buf_reserve(out, WIRE_HEADER_SIZE + WIRE_OUTPUT_OVERHEAD + max);
	frame_begin(out, WIRE_OUTPUT, 0, exec->stream, 0);
	buf_append(out, offsets, sizeof(offsets));
	n = ring_read(&exec->ring, exec->sent, out->data + out->len, max, &channel, &channel_offset,
		      err);
	if (n < 0) {
		out->len = start;
		return -1;
	}
	put_le64((uint8_t *)out->data + out->len - 16, exec->sent);
	put_le64((uint8_t *)out->data + out->len - 8, channel_offset);
	out->len += (size_t)n;
	frame_amend(out, start, (uint8_t)channel);
	exec->sent += (uint64_t)n;
	exec->credit -= (uint64_t)n;
	return 0;
}

bool output_pump(struct exec *exec)
{
	struct session *s = exec->relay->session;
	_cleanup_error_ struct error err = { 0 };

	if (!s || !exec->stream || !session_has_room(s))
		return false;
	/* Told when there is something to send behind it, not for every byte that falls out of the
	 * ring. */
	if (exec->sent < exec->ring.begin &&
	    (exec->credit > 0 ||
	     (exec->phase == WIRE_EXEC_EXITED && exec->ring.begin == exec->ring.end))) {
		send_truncated(exec, s, exec->ring.begin);
		return true;
	}
	if (exec->sent >= exec->ring.begin && exec->sent < exec->ring.end && exec->credit > 0) {
		if (send_stretch(exec, s, &err) < 0) {
			log_error("exec %s: %s", exec->id_text, err.message);
			send_truncated(exec, s, exec->ring.end);
		}
		return true;
	}
	if (exec->phase == WIRE_EXEC_EXITED && exec->sent == exec->ring.end) {
		send_exit(exec, s);
		return true;
	}
	return false;
}
