/*
 * What an open session may ask for: one function per message, one line per message in the table.
 */
#include <errno.h>
#include <string.h>
#include "base/log.h"
#include "relay/exec.h"
#include "relay/file_tree.h"
#include "relay/files.h"
#include "relay/session.h"
#include "wire/place.h"

static void serve_ping(struct session *s, const struct wire_message *m)
{
	session_send(s, 0, WIRE_PONG, &(struct wire_pong){ .token = m->ping.token });
}

static void serve_pong(struct session *s, const struct wire_message *m)
{
	(void)s;
	(void)m;
}

static void attach(struct session *s, struct exec *exec, uint32_t stream, uint64_t from,
		   uint32_t credit, bool existing)
{
	struct wire_exec_started started = {
		.pid = (uint32_t)exec->pid,
		.existing = existing,
		.stdin_offset = exec->stdin_offset,
		.end_offset = exec->ring.end,
		.kept_offset = exec->ring.begin,
		.noted = exec->note.len > 0,
	};

	if (from > exec->ring.end) {
		session_refuse(s, stream, WERR_BAD_OFFSET, 0, "output ends at %llu",
			       (unsigned long long)exec->ring.end);
		return;
	}
	if (exec->stream)
		session_refuse(s, exec->stream, WERR_REPLACED, 0, "attached on another stream");
	/* What waits in the buffer was accepted; the new credit leaves room for it. */
	exec->stdin_credit =
		WIRE_STDIN_CREDIT - (uint32_t)MIN_OF(exec->stdin_buf.len, WIRE_STDIN_CREDIT);
	exec->stdin_owed = 0;
	started.stdin_credit = exec->stdin_credit;
	exec->stream = stream;
	exec->sent = from;
	exec->credit = credit;
	exec->exit_sent = false;
	session_send(s, stream, WIRE_EXEC_STARTED, &started);
	if (exec->stalled)
		session_send(s, stream, WIRE_EXEC_STALLED,
			     &(struct wire_exec_stalled){ .stalled = 1 });
	session_pump(s);
}

static void serve_exec_start(struct session *s, const struct wire_message *m)
{
	const struct wire_exec_start *start = &m->exec_start;
	struct relay *relay = s->relay;
	struct exec *exec = exec_find(relay, start->exec_id);
	struct start_failure failure = { 0 };

	if (exec) {
		attach(s, exec, m->stream, start->from_offset, start->credit, true);
		return;
	}
	if (relay->ending) {
		session_refuse(s, m->stream, WERR_ENDING, 0, "the place is ending");
		return;
	}
	if (relay->pause.paused) {
		session_refuse(s, m->stream, WERR_PAUSED, 0,
			       "the lease is paused: resume it first");
		return;
	}
	if (relay->exec_count >= relay->config.max_execs) {
		session_refuse(s, m->stream, WERR_TOO_MANY, 0, "%u execs are known already",
			       (unsigned)relay->exec_count);
		return;
	}
	if (exec_start(relay, start, &exec, &failure) < 0)
		session_refuse(s, m->stream, failure.code, failure.errnum, "%s", failure.message);
	else
		attach(s, exec, m->stream, 0, start->credit, false);
	/* Whoever has something to feed waits for the word. */
	if (exec && start->stdin_mode == WIRE_STDIN_NONE && !start->pty)
		session_linger(s);
}

/* Refuses by itself when the exec is not known. */
static struct exec *known(struct session *s, const struct wire_message *m, const uint8_t *id)
{
	struct exec *exec = exec_find(s->relay, id);

	if (!exec)
		session_refuse(s, m->stream, WERR_NO_EXEC, 0, "there is no such exec");
	return exec;
}

static void serve_exec_attach(struct session *s, const struct wire_message *m)
{
	struct exec *exec = known(s, m, m->exec_attach.exec_id);

	if (exec)
		attach(s, exec, m->stream, m->exec_attach.from_offset, m->exec_attach.credit, true);
}

static void serve_exec_ack(struct session *s, const struct wire_message *m)
{
	struct exec *exec = exec_by_stream(s->relay, m->stream);

	if (!exec)
		return;
	if (m->exec_ack.offset > exec->sent) {
		session_reject(s, WERR_PROTOCOL, "offset %llu was acknowledged before it was sent",
			       (unsigned long long)m->exec_ack.offset);
		return;
	}
	output_acknowledge(exec, m->exec_ack.offset);
}

static void serve_exec_signal(struct session *s, const struct wire_message *m)
{
	struct exec *exec = known(s, m, m->exec_signal.exec_id);
	int r;

	if (!exec)
		return;
	if (m->exec_signal.signal == 0) {
		session_refuse(s, m->stream, WERR_INVALID, EINVAL, "0 is no signal");
		return;
	}
	r = exec->phase == WIRE_EXEC_EXITED ? -ESRCH
					    : s->relay->tree->signal(exec, m->exec_signal.target,
								     (int)m->exec_signal.signal);
	if (r == -ESRCH)
		session_refuse(s, m->stream, WERR_EXITED, ESRCH, "it has ended");
	else if (r < 0)
		session_refuse(s, m->stream, WERR_DENIED, -r, "%s", strerror(-r));
	else
		session_done(s, m->stream);
}

static void serve_exec_resize(struct session *s, const struct wire_message *m)
{
	struct exec *exec = known(s, m, m->exec_resize.exec_id);
	int r;

	if (!exec)
		return;
	if (!exec->pty) {
		session_refuse(s, m->stream, WERR_INVALID, ENOTTY, "it has no terminal");
		return;
	}
	if (exec->outlet[OUTLET_MAIN].fd < 0) {
		session_refuse(s, m->stream, WERR_EXITED, 0, "its terminal is closed");
		return;
	}
	r = pty_resize(exec->outlet[OUTLET_MAIN].fd, m->exec_resize.rows, m->exec_resize.cols);
	if (r < 0)
		session_refuse(s, m->stream, WERR_IO, -r, "%s", strerror(-r));
	else
		session_done(s, m->stream);
}

static void serve_exec_kill(struct session *s, const struct wire_message *m)
{
	struct exec *exec = known(s, m, m->exec_kill.exec_id);

	if (!exec)
		return;
	session_done(s, m->stream);
	if (m->exec_kill.at_once)
		exec_kill(exec, m->exec_kill.reason);
	else
		exec_end(exec, m->exec_kill.reason);
}

static void serve_exec_kill_all(struct session *s, const struct wire_message *m)
{
	session_done(s, m->stream);
	for (struct exec *e = s->relay->execs; e; e = e->next)
		exec_kill(e, m->exec_kill_all.reason);
}

static void serve_exec_list(struct session *s, const struct wire_message *m)
{
	for (const struct exec *e = s->relay->execs; e; e = e->next) {
		struct wire_exec_state state;

		exec_describe(e, &state);
		session_send(s, m->stream, WIRE_EXEC_STATE, &state);
	}
	session_done(s, m->stream);
}

static void serve_exec_forget(struct session *s, const struct wire_message *m)
{
	struct exec *exec = known(s, m, m->exec_forget.exec_id);

	if (!exec)
		return;
	if (exec->phase != WIRE_EXEC_EXITED) {
		session_refuse(s, m->stream, WERR_RUNNING, 0, "it has not ended");
		return;
	}
	exec_forget(exec);
	session_done(s, m->stream);
}

static void serve_credit(struct session *s, const struct wire_message *m)
{
	struct exec *exec = exec_by_stream(s->relay, m->stream);

	if (!exec) {
		if (!file_tree_credit(s, m->stream, m->credit.bytes))
			files_credit(s, m->stream, m->credit.bytes);
		return;
	}
	if (exec->credit + m->credit.bytes > WIRE_CREDIT_MAX) {
		session_reject(s, WERR_PROTOCOL, "too much credit on stream %u",
			       (unsigned)m->stream);
		return;
	}
	exec->credit += m->credit.bytes;
	session_pump(s);
}

static void serve_reset(struct session *s, const struct wire_message *m)
{
	struct exec *exec = exec_by_stream(s->relay, m->stream);

	if (exec)
		exec->stream = 0;
	else if (!file_tree_reset(s, m->stream))
		files_reset(s, m->stream);
}

enum stream_rule {
	ON_CONNECTION, /* stream 0 */
	OPENS,         /* a new stream */
	ON_STREAM,     /* one that was opened; without effect when it has ended */
};

static const struct request {
	enum wire_type type;
	enum stream_rule rule;
	void (*serve)(struct session *, const struct wire_message *);
} requests[] = {
	{ WIRE_PING, ON_CONNECTION, serve_ping },
	{ WIRE_PONG, ON_CONNECTION, serve_pong },
	{ WIRE_CREDIT, ON_STREAM, serve_credit },
	{ WIRE_RESET, ON_STREAM, serve_reset },
	{ WIRE_PLACE_PAUSE, OPENS, pause_serve },
	{ WIRE_EXEC_START, OPENS, serve_exec_start },
	{ WIRE_EXEC_ATTACH, OPENS, serve_exec_attach },
	{ WIRE_EXEC_ACK, ON_STREAM, serve_exec_ack },
	{ WIRE_EXEC_SIGNAL, OPENS, serve_exec_signal },
	{ WIRE_EXEC_RESIZE, OPENS, serve_exec_resize },
	{ WIRE_EXEC_KILL, OPENS, serve_exec_kill },
	{ WIRE_EXEC_KILL_ALL, OPENS, serve_exec_kill_all },
	{ WIRE_EXEC_LIST, OPENS, serve_exec_list },
	{ WIRE_EXEC_FORGET, OPENS, serve_exec_forget },
	{ WIRE_FILE_STAT, OPENS, files_stat },
	{ WIRE_FILE_LIST, OPENS, files_list },
	{ WIRE_FILE_READ, OPENS, files_read },
	{ WIRE_FILE_WRITE, OPENS, files_write },
	{ WIRE_FILE_MKDIR, OPENS, files_mkdir },
	{ WIRE_FILE_RENAME, OPENS, files_rename },
	{ WIRE_FILE_REMOVE, OPENS, files_remove },
	{ WIRE_FILE_CHMOD, OPENS, files_chmod },
	{ WIRE_TREE_SCAN, OPENS, file_tree_scan },
	{ WIRE_TREE_HASH, OPENS, file_tree_hash },
	{ WIRE_TREE_PUT, OPENS, file_tree_put },
	{ WIRE_TREE_GET, OPENS, file_tree_get },
};

void request_serve(struct session *s, const struct wire_message *m)
{
	const struct request *request = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(requests) && !request; i++)
		if (requests[i].type == m->type)
			request = &requests[i];
	if (!request) {
		session_reject(s, WERR_PROTOCOL, "a relay takes no %s", wire_type_name(m->type));
		return;
	}
	if (request->rule == ON_CONNECTION && m->stream != 0) {
		session_reject(s, WERR_PROTOCOL, "%s belongs on stream 0", wire_type_name(m->type));
		return;
	}
	if (request->rule == OPENS) {
		if (m->stream <= s->highest_stream) {
			session_reject(s, WERR_PROTOCOL, "stream %u was used before",
				       (unsigned)m->stream);
			return;
		}
		s->highest_stream = m->stream;
	}
	if (request->rule == ON_STREAM && (m->stream == 0 || m->stream > s->highest_stream)) {
		session_reject(s, WERR_PROTOCOL, "stream %u was never opened", (unsigned)m->stream);
		return;
	}
	request->serve(s, m);
}

void request_data(struct session *s, const struct frame *frame)
{
	struct exec *exec;
	bool end = frame->flags & WIRE_END;

	if (frame->stream == 0 || frame->stream > s->highest_stream || (frame->flags & ~WIRE_END)) {
		session_reject(s, WERR_PROTOCOL, "data on stream %u, which was never opened",
			       (unsigned)frame->stream);
		return;
	}
	exec = exec_by_stream(s->relay, frame->stream);
	if (!exec) {
		if (!file_tree_data(s, frame->stream, frame->payload, frame->length, end))
			files_data(s, frame->stream, frame->payload, frame->length, end);
		return;
	}
	if (input_take(exec, frame->payload, frame->length, end) < 0)
		session_reject(s, WERR_PROTOCOL,
			       "more standard input than stream %u has credit for",
			       (unsigned)frame->stream);
}
