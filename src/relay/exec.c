#include "relay/exec.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "relay/session.h"
#include "wire/place.h"

/* After the tree was killed the pipes must end; whoever left the tree with one does not hold us. */
#define FORCE_CLOSE_MS 2000
/* Most commands have ended by then, and only their exit is in the journal. */
#define JOURNAL_AFTER_MS 20
#define DEADLINE_MAX_MS (100ull * 365 * 24 * 3600 * 1000)

struct exec *exec_find(struct relay *relay, const uint8_t id[WIRE_ID_SIZE])
{
	for (struct exec *e = relay->execs; e; e = e->next)
		if (memcmp(e->id, id, WIRE_ID_SIZE) == 0)
			return e;
	return NULL;
}

struct exec *exec_by_stream(struct relay *relay, uint32_t stream)
{
	for (struct exec *e = relay->execs; e; e = e->next)
		if (e->stream == stream)
			return e;
	return NULL;
}

void exec_describe(const struct exec *exec, struct wire_exec_state *out)
{
	const struct ring *ring = &exec->ring;
	int status = exec->wait_status;

	*out = (struct wire_exec_state){
		.state = exec->phase,
		.pid = (uint32_t)exec->pid,
		.pty = exec->pty,
		.stalled = exec->stalled,
		.end_offset = ring->end,
		.acked_offset = exec->acked,
		.kept_offset = ring->begin,
		.stdout_offset = ring->channel_end[exec->pty ? WIRE_PTY : WIRE_STDOUT],
		.stderr_offset = ring->channel_end[WIRE_STDERR],
		.stdin_offset = exec->stdin_offset,
		.started_ms = exec->started_ms,
		.reason = exec->phase == WIRE_EXEC_EXITED ? exec->reason : REASON_NONE,
		.wall_us = (uint64_t)exec->wall_us,
		.user_us = exec->user_us,
		.sys_us = exec->sys_us,
		.max_rss_kb = exec->max_rss_kb,
		.note = exec->note,
	};
	memcpy(out->exec_id, exec->id, WIRE_ID_SIZE);
	if (exec->main_ended && WIFEXITED(status))
		out->exit_code = (uint32_t)WEXITSTATUS(status);
	else if (exec->main_ended)
		out->signal = (uint32_t)WTERMSIG(status);
}

/*
 * A kill we ordered explains the end only if it was what ended it; what was asked to leave first
 * left because of that, whatever it said on its way out.
 */
static enum wire_reason reason_of(struct exec *exec)
{
	bool killed = WIFSIGNALED(exec->wait_status) && WTERMSIG(exec->wait_status) == SIGKILL;

	if ((killed || exec->asked) && exec->kill_reason != REASON_NONE)
		return exec->kill_reason;
	if (killed && exec->relay->tree->ran_out_of_memory(exec))
		return REASON_OOM;
	return WIFSIGNALED(exec->wait_status) ? REASON_SIGNALLED : REASON_EXITED;
}

static void exec_record(struct exec *exec)
{
	struct relay *relay = exec->relay;
	_cleanup_error_ struct error err = { 0 };

	exec->phase = WIRE_EXEC_EXITED;
	loop_disarm(&relay->loop, &exec->journal);
	loop_disarm(&relay->loop, &exec->deadline);
	loop_disarm(&relay->loop, &exec->grace);
	loop_disarm(&relay->loop, &exec->leave);
	input_close(exec);
	relay->tree->release(exec);
	exec->stalled = false;
	if (journal_record(relay, exec, &err) < 0)
		log_error("exec %s: the exit is not in the journal: %s", exec->id_text,
			  err.message);
	if (relay->session && exec->stream)
		session_pump(relay->session);
}

void exec_advance(struct exec *exec)
{
	struct relay *relay = exec->relay;

	if (!exec->main_ended || exec->phase == WIRE_EXEC_EXITED)
		return;
	exec->phase = WIRE_EXEC_DRAINING;
	/* The rest of the tree has its grace too. */
	if (exec->leave.at != 0 && !exec->tree_empty) {
		if (!exec->awaited) {
			exec->awaited = true;
			relay->tree->await(exec);
		}
		return;
	}
	if (output_is_open(exec)) {
		if (exec->grace.at == 0 && !exec->grace_over)
			loop_arm(&relay->loop, &exec->grace, WIRE_GRACE_MS);
		return;
	}
	if (!exec->finishing) {
		exec->finishing = true;
		relay->tree->finish(exec);
		return;
	}
	if (exec->tree_empty)
		exec_record(exec);
}

void exec_procs_emptied(struct exec *exec)
{
	exec->tree_empty = true;
	exec_advance(exec);
}

void exec_main_ended(struct exec *exec, int wait_status, uint64_t user_us, uint64_t sys_us,
		     uint64_t max_rss_kb)
{
	exec->main_ended = true;
	exec->wait_status = wait_status;
	exec->wall_us = loop_now_us() - exec->started_us;
	exec->user_us = user_us;
	exec->sys_us = sys_us;
	exec->max_rss_kb = max_rss_kb;
	exec->reason = reason_of(exec);
	output_let_go(exec);
	exec_advance(exec);
}

static void grace_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, grace);

	if (!exec->grace_over) {
		exec->grace_over = true;
		exec->relay->tree->kill(exec);
		loop_arm(&exec->relay->loop, timer, FORCE_CLOSE_MS);
		return;
	}
	/* A full ring is no reason to lose bytes, nor one that was full a moment ago: only what
	 * nobody can drain is cut off. */
	if (exec->stalled || exec->was_stalled) {
		exec->was_stalled = false;
		loop_arm(&exec->relay->loop, timer, FORCE_CLOSE_MS);
		return;
	}
	log_warn("exec %s: its output is held open from outside its tree", exec->id_text);
	output_close(exec);
	exec_advance(exec);
}

static void deadline_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, deadline);

	exec_end(exec, REASON_TIMEOUT);
}

static void journal_due(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, journal);
	_cleanup_error_ struct error err = { 0 };

	if (journal_record(exec->relay, exec, &err) < 0)
		log_warn("exec %s: its start is not in the journal: %s", exec->id_text,
			 err.message);
}

static void leave_due(struct timer *timer)
{
	exec_kill(container_of(timer, struct exec, leave), REASON_NONE);
}

void exec_leave_pipes(struct relay *relay)
{
	for (struct exec *e = relay->execs; e; e = e->next) {
		close_fdp(&e->stdin_fd);
		for (size_t i = 0; i < OUTLETS; i++)
			close_fdp(&e->outlet[i].held_end);
	}
}

void exec_end(struct exec *exec, enum wire_reason reason)
{
	struct relay *relay = exec->relay;

	/* What has ended by itself did not end because of this. */
	relay_reap(relay);
	if (exec->phase == WIRE_EXEC_EXITED || exec->asked)
		return;
	if (exec->kill_reason == REASON_NONE)
		exec->kill_reason = reason;
	exec->asked = true;
	loop_disarm(&relay->loop, &exec->grace);
	loop_arm(&relay->loop, &exec->leave, WIRE_LEAVE_MS);
	relay->tree->signal(exec, WIRE_TO_TREE, SIGTERM);
	/* Whoever is stopped does not hear it before it goes on. */
	relay->tree->signal(exec, WIRE_TO_TREE, SIGCONT);
	exec_advance(exec);
}

void exec_kill(struct exec *exec, enum wire_reason reason)
{
	if (exec->phase == WIRE_EXEC_EXITED)
		return;
	if (exec->kill_reason == REASON_NONE)
		exec->kill_reason = reason;
	loop_disarm(&exec->relay->loop, &exec->leave);
	exec->relay->tree->kill(exec);
	exec_advance(exec);
}

static void exec_free(struct exec *exec)
{
	struct relay *relay = exec->relay;

	loop_disarm(&relay->loop, &exec->journal);
	loop_disarm(&relay->loop, &exec->deadline);
	loop_disarm(&relay->loop, &exec->grace);
	loop_disarm(&relay->loop, &exec->leave);
	output_close(exec);
	input_close(exec);
	relay->tree->release(exec);
	ring_free(&exec->ring);
	free((void *)(uintptr_t)exec->note.data);
	free(relay->spare_exec);
	relay->spare_exec = exec;
}

void exec_forget(struct exec *exec)
{
	struct relay *relay = exec->relay;

	for (struct exec **p = &relay->execs; *p; p = &(*p)->next) {
		if (*p == exec) {
			*p = exec->next;
			break;
		}
	}
	relay->exec_count--;
	exec_free(exec);
	if (relay->exec_count == 0) {
		free(relay->scratch);
		relay->scratch = NULL;
	}
}

static struct wire_bytes note_copy(const struct wire_bytes *note)
{
	uint8_t *copy = note->len > 0 ? xmalloc(note->len) : NULL;

	if (copy)
		memcpy(copy, note->data, note->len);
	return (struct wire_bytes){ copy, note->len };
}

static struct exec *exec_new(struct relay *relay, const struct wire_exec_start *m)
{
	struct exec *exec = relay->spare_exec ? relay->spare_exec : xmalloc(sizeof(*exec));
	char hex[2 * WIRE_ID_SIZE + 1];
	struct timespec now;

	relay->spare_exec = NULL;
	memset(exec, 0, sizeof(*exec));
	exec->relay = relay;
	memcpy(exec->id, m->exec_id, WIRE_ID_SIZE);
	hex_encode(hex, m->exec_id, WIRE_ID_SIZE);
	snprintf(exec->id_text, sizeof(exec->id_text), "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8,
		 hex + 12, hex + 16, hex + 20);
	exec->pty = m->pty;
	exec->note = note_copy(&m->note);
	exec->stdin_fd = exec->tree.shim_fd = -1;
	exec->stdin_watch.fd = exec->tree.shim.fd = -1;
	for (size_t i = 0; i < OUTLETS; i++)
		exec->outlet[i] =
			(struct outlet){ .exec = exec, .fd = -1, .held_end = -1, .watch.fd = -1 };
	ring_init(&exec->ring, RELAY_FD_SPOOL, exec->id_text,
		  MIN_OF(PLACE_RING_DEFAULT, relay->config.ring_max));
	exec->journal.due = journal_due;
	exec->deadline.due = deadline_due;
	exec->grace.due = grace_due;
	exec->leave.due = leave_due;
	exec->started_us = loop_now_us();
	clock_gettime(CLOCK_REALTIME, &now);
	exec->started_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	return exec;
}

int exec_start(struct relay *relay, const struct wire_exec_start *m, struct exec **out,
	       struct start_failure *failure)
{
	struct exec *exec = exec_new(relay, m);

	if (start_run(exec, m, failure) < 0) {
		exec_free(exec);
		return -1;
	}
	exec->next = relay->execs;
	relay->execs = exec;
	relay->exec_count++;
	if (exec->note.len > 0)
		loop_arm(&relay->loop, &exec->journal, JOURNAL_AFTER_MS);
	if (m->deadline_ms > 0)
		loop_arm(&relay->loop, &exec->deadline,
			 (int64_t)MIN_OF(m->deadline_ms, DEADLINE_MAX_MS));
	*out = exec;
	return 0;
}
